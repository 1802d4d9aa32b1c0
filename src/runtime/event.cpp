#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/moved_from.hpp"
#include "moelink/error.hpp"
#include "moelink/stream.hpp"
#include "runtime/cuda_backend.hpp"
#include "runtime/host_queue.hpp"
#include "runtime/signal.hpp"

namespace moelink {
namespace {

/// Shared with the tasks that record it, so that an event may go before its stream has passed it.
struct HostEvent {
  Signal passed;                              // counts records that the stream has passed
  std::atomic<std::uint32_t> num_records{0};  // records enqueued
  std::atomic<std::int64_t> time_ns{0};       // of the last one passed

  [[nodiscard]] bool is_complete() const { return passed.count() == num_records.load(std::memory_order_relaxed); }
};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

struct Event::Impl {
  explicit Impl(Device where) : device(where) {
    if (device.is_host()) {
      host = std::make_shared<HostEvent>();
    } else {
      cuda_event = cuda::create_event(device.ordinal());
    }
  }
  ~Impl() {
    if (device.is_cuda()) {
      cuda::destroy_event(device.ordinal(), cuda_event);
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Device device;
  void* cuda_event = nullptr;
  std::shared_ptr<HostEvent> host;
};

Event::Event(Device device) : impl_(std::make_unique<Impl>(device)) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(StreamView stream) {
  const Impl& own = not_moved_from(impl_, "Event");
  if (stream.device() != own.device) {
    throw Error(ErrorCode::invalid_argument,
                "an event of " + own.device.name() + " was recorded on a stream of " + stream.device().name());
  }
  if (own.device.is_cuda()) {
    cuda::record_event(own.cuda_event, stream);
    return;
  }
  queue_of(stream).enqueue([event = own.host] {
    event->time_ns.store(now_ns(), std::memory_order_relaxed);
    event->passed.raise();
  });
  own.host->num_records.fetch_add(1, std::memory_order_relaxed);
}

void Event::synchronize() const {
  const Impl& own = not_moved_from(impl_, "Event");
  if (own.device.is_cuda()) {
    cuda::synchronize_event(own.device.ordinal(), own.cuda_event);
    return;
  }
  HostEvent& event = *own.host;
  for (std::uint32_t seen = event.passed.count(); !event.is_complete(); seen = event.passed.count()) {
    event.passed.wait_while(seen);
  }
}

std::chrono::duration<double, std::micro> Event::since(const Event& start) const {
  const Impl& own = not_moved_from(impl_, "Event");
  const Impl& other = not_moved_from(start.impl_, "Event");
  using Microseconds = std::chrono::duration<double, std::micro>;
  if (other.device != own.device) {
    throw Error(ErrorCode::invalid_argument, "the time between an event of " + other.device.name() + " and one of " +
                                                 own.device.name() + " was asked for");
  }
  if (own.device.is_cuda()) {
    return Microseconds(cuda::elapsed_us(own.device.ordinal(), other.cuda_event, own.cuda_event));
  }
  for (const HostEvent* event : {other.host.get(), own.host.get()}) {
    if (event->num_records.load(std::memory_order_relaxed) == 0 || !event->is_complete()) {
      throw Error(ErrorCode::invalid_argument,
                  "the time between two events was asked for before both were recorded and passed; synchronise first");
    }
  }
  const std::int64_t elapsed_ns =
      own.host->time_ns.load(std::memory_order_relaxed) - other.host->time_ns.load(std::memory_order_relaxed);
  return Microseconds(static_cast<double>(elapsed_ns) / 1000.0);
}

}  // namespace moelink

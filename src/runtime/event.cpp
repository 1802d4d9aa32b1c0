#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

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
  if (stream.device() != impl_->device) {
    throw Error(ErrorCode::invalid_argument,
                "an event of " + impl_->device.name() + " was recorded on a stream of " + stream.device().name());
  }
  if (impl_->device.is_cuda()) {
    cuda::record_event(impl_->cuda_event, stream);
    return;
  }
  stream.host_queue()->enqueue([event = impl_->host] {
    event->time_ns.store(now_ns(), std::memory_order_relaxed);
    event->passed.raise();
  });
  impl_->host->num_records.fetch_add(1, std::memory_order_relaxed);
}

void Event::synchronize() const {
  if (impl_->device.is_cuda()) {
    cuda::synchronize_event(impl_->device.ordinal(), impl_->cuda_event);
    return;
  }
  HostEvent& event = *impl_->host;
  for (std::uint32_t seen = event.passed.count(); !event.is_complete(); seen = event.passed.count()) {
    event.passed.wait_while(seen);
  }
}

std::chrono::duration<double, std::micro> Event::since(const Event& start) const {
  using Microseconds = std::chrono::duration<double, std::micro>;
  if (start.impl_->device != impl_->device) {
    throw Error(ErrorCode::invalid_argument, "the time between an event of " + start.impl_->device.name() +
                                                 " and one of " + impl_->device.name() + " was asked for");
  }
  if (impl_->device.is_cuda()) {
    return Microseconds(cuda::elapsed_us(impl_->device.ordinal(), start.impl_->cuda_event, impl_->cuda_event));
  }
  for (const HostEvent* event : {start.impl_->host.get(), impl_->host.get()}) {
    if (event->num_records.load(std::memory_order_relaxed) == 0 || !event->is_complete()) {
      throw Error(ErrorCode::invalid_argument,
                  "the time between two events was asked for before both were recorded and passed; synchronise first");
    }
  }
  const std::int64_t elapsed_ns =
      impl_->host->time_ns.load(std::memory_order_relaxed) - start.impl_->host->time_ns.load(std::memory_order_relaxed);
  return Microseconds(static_cast<double>(elapsed_ns) / 1000.0);
}

}  // namespace moelink

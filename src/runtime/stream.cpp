#include "moelink/stream.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/moved_from.hpp"
#include "moelink/error.hpp"
#include "runtime/cuda_backend.hpp"
#include "runtime/device_properties.hpp"
#include "runtime/host_queue.hpp"

namespace moelink {
namespace {

constexpr int kMaxHostThreads = 4096;

int host_threads(int requested) {
  if (requested < 0 || requested > kMaxHostThreads) {
    throw Error(ErrorCode::invalid_argument, "a host stream of " + std::to_string(requested) + " threads; 1 to " +
                                                 std::to_string(kMaxHostThreads) +
                                                 " are possible, 0 means one per core");
  }
  return requested != 0 ? requested : default_host_threads();
}

}  // namespace

HostQueue& queue_of(StreamView stream) {
  if (stream.host_queue() == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "a stream of " + stream.device().name() + " without a queue was given; take it from a moelink::Stream");
  }
  return *stream.host_queue();
}

void StreamView::synchronize() const {
  if (device_.is_host()) {
    queue_of(*this).synchronize();
  } else {
    cuda::synchronize_stream(*this);
  }
}

struct Stream::Impl {
  Impl(Device where, const Options& options) : device(where) {
    if (device.is_host()) {
      queue = std::make_unique<HostQueue>(host_threads(options.num_threads));
    } else {
      cuda_stream = cuda::create_stream(device.ordinal());
    }
  }
  ~Impl() {
    if (device.is_cuda()) {
      cuda::destroy_stream(device.ordinal(), cuda_stream);
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Device device;
  void* cuda_stream = nullptr;
  std::unique_ptr<HostQueue> queue;
};

Stream::Stream(Device device) : Stream(device, Options{}) {}
Stream::Stream(Device device, const Options& options) : impl_(std::make_unique<Impl>(device, options)) {}
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;

StreamView Stream::view() const {
  const Impl& impl = not_moved_from(impl_, "Stream");
  return {impl.device, impl.cuda_stream, impl.queue.get()};
}
Device Stream::device() const { return not_moved_from(impl_, "Stream").device; }

}  // namespace moelink

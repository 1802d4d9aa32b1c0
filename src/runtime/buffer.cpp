#include "moelink/buffer.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "moelink/error.hpp"
#include "runtime/cuda_backend.hpp"
#include "runtime/host_memory.hpp"
#include "runtime/host_queue.hpp"

namespace moelink {
namespace {

/// Of the shares of a copy: no two threads write one cache line.
constexpr std::size_t kAlignment = 256;
/// From here on a copy or fill is shared among the threads of the stream: each share is worth the wake-up.
constexpr std::size_t kParallelBytes = std::size_t{1} << 20;

/// Enqueues `part(offset, size)` over all of `size_bytes`, by one thread or by all of the stream.
template <class Part>
void enqueue_in_parts(HostQueue& queue, std::size_t size_bytes, Part part) {
  if (size_bytes < kParallelBytes) {
    queue.enqueue([size_bytes, part] { part(std::size_t{0}, size_bytes); });
    return;
  }
  const auto grid = static_cast<std::size_t>(queue.num_threads());
  const std::size_t part_bytes = ((size_bytes + grid - 1) / grid + kAlignment - 1) / kAlignment * kAlignment;
  queue.launch_blocks(queue.num_threads(), 0, [size_bytes, part_bytes, part](const HostExec& ex) {
    const std::size_t begin = static_cast<std::size_t>(ex.block()) * part_bytes;
    if (begin < size_bytes) {
      part(begin, std::min(part_bytes, size_bytes - begin));
    }
  });
}

void refuse_null(const char* call, const char* name, const void* pointer, std::size_t size_bytes) {
  if (pointer == nullptr) {
    throw Error(ErrorCode::invalid_argument, std::string(call) + ": " + name + " is null; expected memory of " +
                                                 std::to_string(size_bytes) + " bytes");
  }
}

}  // namespace

Buffer::Buffer(Device device, std::size_t size_bytes) : device_(device), size_bytes_(size_bytes) {
  if (size_bytes != 0) {
    data_ = device.is_host() ? allocate_on_host(size_bytes) : cuda::allocate(device.ordinal(), size_bytes);
  }
}

Buffer::~Buffer() {
  if (data_ == nullptr) {
    return;
  }
  if (device_.is_host()) {
    std::free(data_);
  } else {
    cuda::release(device_.ordinal(), data_);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  // What this held goes to `other`'s temporary and is freed with it; self-assignment is harmless.
  Buffer taken(std::move(other));
  std::swap(device_, taken.device_);
  std::swap(data_, taken.data_);
  std::swap(size_bytes_, taken.size_bytes_);
  return *this;
}

void copy_bytes(void* destination, const void* source, std::size_t size_bytes, StreamView stream) {
  if (size_bytes == 0) {
    return;
  }
  refuse_null("copy_bytes", "destination", destination, size_bytes);
  refuse_null("copy_bytes", "source", source, size_bytes);
  if (stream.device().is_cuda()) {
    cuda::copy(destination, source, size_bytes, stream);
    return;
  }
  enqueue_in_parts(queue_of(stream), size_bytes, [destination, source](std::size_t offset, std::size_t bytes) {
    std::memcpy(static_cast<std::byte*>(destination) + offset, static_cast<const std::byte*>(source) + offset, bytes);
  });
}

void fill_bytes(void* destination, unsigned char value, std::size_t size_bytes, StreamView stream) {
  if (size_bytes == 0) {
    return;
  }
  refuse_null("fill_bytes", "destination", destination, size_bytes);
  if (stream.device().is_cuda()) {
    cuda::fill(destination, value, size_bytes, stream);
    return;
  }
  enqueue_in_parts(queue_of(stream), size_bytes, [destination, value](std::size_t offset, std::size_t bytes) {
    std::memset(static_cast<std::byte*>(destination) + offset, value, bytes);
  });
}

}  // namespace moelink

#include "runtime/pinned_buffer.hpp"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/cuda_backend.hpp"
#include "runtime/host_memory.hpp"

namespace moelink {
PinnedBuffer::PinnedBuffer(Device device, std::size_t size_bytes) : device_(device), size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  data_ = device.is_host() ? allocate_on_host(size_bytes) : cuda::allocate_pinned(device.ordinal(), size_bytes);
  std::memset(data_, 0, size_bytes);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ == nullptr) return;
  if (device_.is_host()) {
    std::free(data_);
  } else {
    cuda::release_pinned(device_.ordinal(), data_);
  }
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  PinnedBuffer taken(std::move(other));
  std::swap(device_, taken.device_);
  std::swap(data_, taken.data_);
  std::swap(size_bytes_, taken.size_bytes_);
  return *this;
}

}  // namespace moelink

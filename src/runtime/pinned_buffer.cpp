#include "runtime/pinned_buffer.hpp"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/cuda_driver.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

constexpr std::size_t kAlignment = 256;

void* allocate_on_host(std::size_t size_bytes) {
  void* memory = std::aligned_alloc(kAlignment, (size_bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) throw Error(ErrorCode::capacity, text("the host has no memory for ", size_bytes, " bytes"));
  return memory;
}

#if MOELINK_HAVE_CUDA

void* allocate_pinned(int ordinal, std::size_t size_bytes) {
  const CudaContextScope scope(ordinal);
  void* memory = nullptr;
  // Portable, so that every context of the process may use it; mapped at its own address (unified addressing).
  check_cuda(
      CudaDriver::get().mem_host_alloc(&memory, size_bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
      "cuMemHostAlloc");
  return memory;
}

void free_pinned(int ordinal, void* memory) noexcept {
  try {
    const CudaContextScope scope(ordinal);
    CudaDriver::get().mem_free_host(memory);
  } catch (...) {
    // The driver is gone, and the memory with it: there is nobody to tell.
  }
}

#else

void* allocate_pinned(int ordinal, std::size_t) {
  throw Error(ErrorCode::unsupported, text("cuda:", ordinal, ": this build has no CUDA backend; use Device::host()"));
}
void free_pinned(int, void*) noexcept {}

#endif

}  // namespace

PinnedBuffer::PinnedBuffer(Device device, std::size_t size_bytes) : device_(device), size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  data_ = device.is_host() ? allocate_on_host(size_bytes) : allocate_pinned(device.ordinal(), size_bytes);
  std::memset(data_, 0, size_bytes);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ == nullptr) return;
  if (device_.is_host()) {
    std::free(data_);
  } else {
    free_pinned(device_.ordinal(), data_);
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

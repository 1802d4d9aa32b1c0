// CUDA virtual memory management: physical memory by handle, and addresses that show it.
#pragma once

#if MOELINK_HAVE_CUDA

#include <cstddef>
#include <memory>
#include <utility>

#include "transports/cuda/context.hpp"

namespace moelink {

/// A reference to physical memory or to a multicast object, released with this. The memory itself lives until the last
/// reference and the last mapping are gone, in whatever process they are.
class CudaHandle {
 public:
  CudaHandle() noexcept = default;
  CudaHandle(std::shared_ptr<CudaContext> context, CUmemGenericAllocationHandle handle) noexcept
      : context_(std::move(context)), handle_(handle) {}
  ~CudaHandle();
  CudaHandle(CudaHandle&& other) noexcept : context_(std::move(other.context_)), handle_(other.handle_) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(handle_, other.handle_);
    return *this;
  }

  [[nodiscard]] CUmemGenericAllocationHandle get() const noexcept { return handle_; }
  [[nodiscard]] explicit operator bool() const noexcept { return context_ != nullptr; }

 private:
  std::shared_ptr<CudaContext> context_;
  CUmemGenericAllocationHandle handle_ = 0;
};

/// A range of addresses that shows all of a handle's memory to one device, readable and writable.
class CudaMapping {
 public:
  /// `size_bytes`: a multiple of the granularity. The handle may be released afterwards.
  CudaMapping(std::shared_ptr<CudaContext> context, const CudaHandle& handle, std::size_t size_bytes,
              std::size_t alignment_bytes);
  ~CudaMapping();
  CudaMapping(const CudaMapping&) = delete;
  CudaMapping& operator=(const CudaMapping&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return reinterpret_cast<std::byte*>(address_); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  void map(const CudaHandle& handle);

  std::shared_ptr<CudaContext> context_;
  std::size_t size_bytes_;
  CUdeviceptr address_ = 0;
};

/// What is asked of physical memory that is to be shared by handles of `type`.
[[nodiscard]] CUmemAllocationProp shareable_memory(const CudaContext& context, CUmemAllocationHandleType type);
[[nodiscard]] CudaHandle create_memory(const std::shared_ptr<CudaContext>& context, std::size_t size_bytes,
                                       const CUmemAllocationProp& properties);
/// Sizes are multiples of it.
[[nodiscard]] std::size_t granularity_of(const CudaContext& context, const CUmemAllocationProp& properties);

}  // namespace moelink

#endif

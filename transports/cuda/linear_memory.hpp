// Device memory from cuMemAlloc.
#pragma once

#if MOELINK_HAVE_CUDA

#include <cstddef>
#include <memory>
#include <span>

#include "transports/cuda/context.hpp"

namespace moelink {

/// Owns zeroed device memory.
class CudaLinearMemory {
 public:
  /// `size_bytes` is rounded up to a multiple of `granularity_bytes`.
  CudaLinearMemory(std::shared_ptr<CudaContext> context, std::size_t size_bytes, std::size_t granularity_bytes);
  ~CudaLinearMemory();
  CudaLinearMemory(const CudaLinearMemory&) = delete;
  CudaLinearMemory& operator=(const CudaLinearMemory&) = delete;

  [[nodiscard]] CudaContext& context() const noexcept { return *context_; }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  void store(std::size_t offset_bytes, std::span<const std::byte> source) const {
    context_->copy(data_ + offset_bytes, source.data(), source.size());
  }
  void load(std::size_t offset_bytes, std::span<std::byte> destination) const {
    context_->copy(destination.data(), data_ + offset_bytes, destination.size());
  }

 private:
  std::shared_ptr<CudaContext> context_;
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

/// `size_bytes` rounded up to a multiple of `granularity_bytes`. Throws ErrorCode::invalid_argument for 0 and where it
/// overflows.
[[nodiscard]] std::size_t round_up_bytes(std::size_t size_bytes, std::size_t granularity_bytes);

}  // namespace moelink

#endif

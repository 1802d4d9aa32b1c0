// A device's primary context for set-up work: allocation, zeroing, small copies.
#pragma once

#if MOELINK_HAVE_CUDA

#include <cstddef>
#include <memory>
#include <span>

#include "base/cuda_driver.hpp"

namespace moelink {

/// Holds a device's primary context and a stream of its own, so that set-up work neither waits for nor disturbs the
/// caller's streams. Thread-safe. Memory objects share it, so that it outlives them.
class CudaContext {
 public:
  CudaContext(const CudaDriver& driver, int ordinal);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  [[nodiscard]] const CudaDriver& driver() const noexcept { return driver_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] CUdevice device() const noexcept { return device_; }
  [[nodiscard]] CUcontext handle() const noexcept { return context_; }

  /// Complete on return.
  void zero(void* data, std::size_t size_bytes) const;
  void copy(void* destination, const void* source, std::size_t size_bytes) const;

  /// Makes the context current while it lives, and lets calls that allocate pass while somebody in this process
  /// captures a graph.
  class Scope {
   public:
    explicit Scope(const CudaContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const CudaDriver& driver_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  };

 private:
  const CudaDriver& driver_;
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace moelink

#endif

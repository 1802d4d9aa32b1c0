// A kernel on a GPU.
#pragma once

#if MOELINK_HAVE_CUDA

#include <memory>
#include <string>

#include "base/cuda_driver.hpp"
#include "launch/kernel.hpp"

namespace moelink {

class CudaKernel final : public LoadedKernel {
 public:
  /// Loads `compiled` and its function into `context`, made current by a CudaContextScope, at once: a function that the
  /// driver loads at its first launch could do so while another rank's kernel waits for this one, and hang both.
  CudaKernel(const CudaDriver& driver, Device device, CUcontext context, const KernelRequest& request,
             const CompiledKernel& compiled);
  /// Modules are never unloaded: see loaded_cuda_kernel.
  ~CudaKernel() override = default;

  void launch(const LaunchShape& shape, const void* args, StreamView stream) const override;
  [[nodiscard]] int max_blocks_per_sm(int scratch_bytes) const override;

 private:
  [[nodiscard]] CUstream check(const LaunchShape& shape, StreamView stream) const;

  const CudaDriver& driver_;
  std::string name_;
  Device device_;
  CUcontext context_;
  unsigned threads_;
  int max_scratch_bytes_ = 0;
  CUfunction function_ = nullptr;
};

/// The architecture to compile for, from the device's compute capability.
[[nodiscard]] std::string architecture_of(const CudaDriver& driver, Device device);

/// The kernel of sources with this hash, loaded into the device's primary context now or earlier in this process. It stays loaded as long as the
/// process lives (some ten KB): unloading waits for the device, which a rank must not do while another waits for it.
[[nodiscard]] std::shared_ptr<const LoadedKernel> loaded_cuda_kernel(Device device, const std::string& source_hash,
                                                                     const KernelRequest& request,
                                                                     const CompiledKernel& compiled);

}  // namespace moelink

#endif

#include "moelink/warm_up.hpp"

#include "base/environment.hpp"
#include "base/text.hpp"
#include "exchange/local_kernels.hpp"
#include "exchange/shape.hpp"
#include "jit/kernel_compiler.hpp"
#include "launch/cuda_kernel.hpp"
#include "launch/kernel_report.hpp"

namespace moelink {

std::vector<KernelReport> warm_up(const ExchangeConfig& config, const std::string& architecture) {
  if (!Environment::get().cache) {
    throw Error(ErrorCode::system, "compiled kernels cannot be kept, because MOELINK_CACHE=0 forbids it; unset it");
  }
  if (!DiskCache::user().usable()) {
    throw Error(ErrorCode::system,
                text("compiled kernels cannot be kept in the cache '", DiskCache::user().directory(),
                     "': ", DiskCache::user().reason(), "; set MOELINK_CACHE_DIR to a private directory"));
  }
  // Neither the shape nor what is loaded depends on which GPU it is, or on there being one.
  KernelLoader loader(Device::cuda(0));
  const LocalKernels kernels(loader, LocalDevice{.is_host = false},
                             check_config(config, Communicator::single(Device::host())), config);
  const std::vector<KernelRequest> requests = loader.requests();
  return report_on(requests, KernelCompiler::shared(architecture).get_all(requests));
}

std::string kernel_architecture(Device device) {
  if (device.is_host()) {
    throw Error(ErrorCode::invalid_argument, "the host has no kernel architecture; pass a Device::cuda");
  }
#if MOELINK_HAVE_CUDA
  return architecture_of(CudaDriver::get(), device);
#else
  throw Error(ErrorCode::unsupported, "this library was built without CUDA; name the architecture yourself");
#endif
}

}  // namespace moelink

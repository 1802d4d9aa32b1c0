#include "moelink/warm_up.hpp"

#include <algorithm>

#include "base/environment.hpp"
#include "base/refuse.hpp"
#include "base/text.hpp"
#include "exchange/local_kernels.hpp"
#include "exchange/modes/nvlink_kernels.hpp"
#include "exchange/modes/tensor_parallel_kernels.hpp"
#include "exchange/shape.hpp"
#include "jit/kernel_compiler.hpp"
#include "launch/cuda_kernel.hpp"
#include "launch/kernel_report.hpp"

namespace moelink {
namespace {

/// What is loaded depends on how much scratch a block may have, and that on the architecture alone.
LocalDevice any_gpu_of(const std::string& architecture) {
  const bool has_little = architecture.starts_with("sm_12");
  return {.is_host = false, .max_scratch_bytes = (has_little ? 99 : 227) << 10};
}

/// What the mode would ask for. Neither the shape nor what is loaded depends on anything else of the GPU, or on there
/// being one.
void ask_for_kernels(KernelLoader& loader, const LocalDevice& gpu, const ExchangeShape& shape,
                     const ExchangeConfig& config) {
  if (shape.mode == Mode::local) {
    (void)LocalKernels(loader, gpu, shape, config);
    return;
  }
  if (shape.mode != Mode::tensor_parallel) {
    (void)NvlinkKernels(loader, gpu, shape, config, /*is_shared=*/false);
    return;
  }
  (void)LocalKernels(loader, gpu, shape, config);
  const ExchangeConfig as_carried = carried_config(config);
  TpFacts facts = tp_facts(shape, as_carried, gpu.is_host);
  (void)TensorParallelKernels(loader, facts, shape, as_carried);
  facts.multicast = may_use_nvls(as_carried);  // there may be a switch that sums, or none
  if (facts.multicast) (void)TensorParallelKernels(loader, facts, shape, as_carried);
}

/// Of all ranks: those with one expert more than others have kernels of their own.
std::vector<KernelRequest> requests_of_ranks(const ExchangeConfig& config, const LocalDevice& gpu,
                                             const WarmUpRanks& ranks) {
  if (ranks.num_ranks < 1 || ranks.ranks_per_node < 0) {
    refuse(text("WarmUpRanks are ", ranks.num_ranks, " with ", ranks.ranks_per_node,
                " on a node; expected one rank or more, and 0 (all) or more on a node"));
  }
  std::vector<KernelRequest> requests;
  for (const Communicator& rank : Communicator::in_process(ranks.num_ranks, {.ranks_per_node = ranks.ranks_per_node})) {
    KernelLoader loader(Device::cuda(0));
    ask_for_kernels(loader, gpu, check_config(config, rank), config);
    for (KernelRequest& request : loader.requests()) {
      if (std::ranges::find(requests, request) == requests.end()) requests.push_back(std::move(request));
    }
  }
  return requests;
}

}  // namespace

std::vector<KernelReport> warm_up(const ExchangeConfig& config, const std::string& architecture,
                                  const WarmUpRanks& ranks) {
  if (!Environment::get().cache) {
    throw Error(ErrorCode::system, "compiled kernels cannot be kept, because MOELINK_CACHE=0 forbids it; unset it");
  }
  if (!DiskCache::user().usable()) {
    throw Error(ErrorCode::system,
                text("compiled kernels cannot be kept in the cache '", DiskCache::user().directory(),
                     "': ", DiskCache::user().reason(), "; set MOELINK_CACHE_DIR to a private directory"));
  }
  const std::vector<KernelRequest> requests = requests_of_ranks(config, any_gpu_of(architecture), ranks);
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

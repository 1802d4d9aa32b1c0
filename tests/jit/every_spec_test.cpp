// Every kernel that the test-suite runs compiles for the GPUs we care for, without one here, and spills no register.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "all_reduce/kernels.hpp"
#include "jit/kernel_compiler.hpp"
#include "jit/support.hpp"
#include "moelink/device/moe/local_combine.cuh"
#include "moelink/device/moe/local_decode.cuh"
#include "moelink/device/moe/local_move.cuh"
#include "moelink/device/moe/local_prefill.cuh"
#include "moelink/device/moe/nvlink_combine.cuh"
#include "moelink/device/moe/nvlink_decode.cuh"
#include "moelink/device/moe/nvlink_prefill.cuh"
#include "moelink/device/moe/tensor_parallel_push.cuh"
#include "moelink/device/moe/tensor_parallel_staged.cuh"
#include "moelink/protocol/local_plan.hpp"
#include "moelink/protocol/nvlink_combine_plan.hpp"
#include "moelink/protocol/nvlink_decode_plan.hpp"
#include "moelink/protocol/nvlink_prefill_plan.hpp"
#include "specs.hpp"

namespace moelink {
namespace {

// As an Exchange or an AllReduce on a GPU would ask for them: block sizes are chosen by the plan.
std::vector<KernelRequest> every_request() {
  constexpr LocalDevice kGpu{.is_host = false};
  std::vector<KernelRequest> requests;
  for (const LocalDispatchSpec& spec : test::dispatch_specs()) {
    if (max_decode_tokens(spec, kGpu) >= 0) {
      requests.push_back(make_request<LocalDecode>(with_threads(spec, DispatchVariant::decode, kGpu)));
    }
    requests.push_back(make_request<LocalPrefill>(with_threads(spec, DispatchVariant::prefill, kGpu)));
    requests.push_back(make_request<LocalMove>(with_threads(spec, DispatchVariant::move, kGpu)));
  }
  for (const LocalDispatchSpec& spec : test::quantizing_specs()) {
    requests.push_back(make_request<LocalDecode>(with_threads(spec, DispatchVariant::decode, kGpu)));
  }
  for (const LocalCombineSpec& spec : test::combine_specs()) {
    requests.push_back(make_request<LocalCombine>(with_threads(spec, kGpu)));
  }
  for (const NvlinkCombineSpec& spec : test::nvlink_combine_specs()) {
    requests.push_back(make_request<NvlinkCombine>(with_threads(spec, kGpu, /*whole_sms=*/true)));
  }
  for (const NvlinkDispatchSpec& spec : test::nvlink_dispatch_specs()) {
    requests.push_back(make_request<NvlinkPrefill>(with_prefill_threads(spec, kGpu)));
    if (!nvlink_decode_holds_rows(spec.row_bytes, kGpu)) continue;
    requests.push_back(make_request<NvlinkDecode>(with_decode_threads(spec, kGpu)));
  }
  for (TensorParallelSpec spec : test::tensor_parallel_specs()) {
    spec.threads = tp_staged_threads(spec.top_k, spec.num_ranks);
    requests.push_back(make_request<TensorParallelStaged>(spec));
    if (spec.two_shot) continue;
    spec.threads = kTpPushThreads;
    requests.push_back(make_request<TensorParallelPush>(spec));
  }
  requests.push_back(
      make_request<NvlinkCombine>(with_threads(test::nvlink_combine_specs().front(), kGpu, /*whole_sms=*/false)));
  KernelLoader loader(Device::cuda(0));
  (void)AllReduceKernels::add_to(loader, Element::bfloat16, 2, false);
  (void)AllReduceKernels::add_to(loader, Element::float32, 3, false);
  (void)AllReduceKernels::add_to(loader, Element::float16, 4, true);
  (void)AllReduceKernels::add_to(loader, Element::bfloat16, 8, true);
  for (KernelRequest& request : loader.requests()) {
    requests.push_back(std::move(request));
  }
  return requests;
}

class EverySpec : public testing::TestWithParam<const char*> {};

TEST_P(EverySpec, CompilesWithoutSpills) {
  MOELINK_NEEDS_NVRTC();
  const std::vector<KernelRequest> requests = every_request();
  const auto kernels = KernelCompiler::shared(GetParam()).get_all(requests);

  std::size_t num_compiled = 0;
  double total_ms = 0;
  double slowest_ms = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const ResourceUsage& usage = kernels[i]->usage;
    EXPECT_FALSE(usage.spills()) << requests[i].expression << "\nspills " << usage.spill_store_bytes << " bytes with "
                                 << usage.registers << " registers";
    EXPECT_LE(usage.registers * requests[i].threads, 65536) << requests[i].expression << " cannot be launched";
    if (kernels[i]->origin == KernelOrigin::compiler) {
      ++num_compiled;
      total_ms += kernels[i]->milliseconds;
      slowest_ms = std::max(slowest_ms, kernels[i]->milliseconds);
    }
  }
  std::printf("%s: %zu specs, %zu compiled now: %.0f ms each, slowest %.0f ms\n", GetParam(), requests.size(),
              num_compiled, num_compiled != 0 ? total_ms / static_cast<double>(num_compiled) : 0.0, slowest_ms);
}

INSTANTIATE_TEST_SUITE_P(Architectures, EverySpec, testing::Values("sm_90a", "sm_100a"),
                         [](const auto& value) { return std::string(value.param); });

}  // namespace
}  // namespace moelink

// Every kernel that the test-suite runs compiles for the GPUs we care for, without one here, spills no register, and
// keeps its convergence barriers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "all_reduce/kernels.hpp"
#include "jit/kernel_compiler.hpp"
#include "jit/saved_barriers.hpp"
#include "jit/support.hpp"
#include "moelink/device/moe/local_combine.cuh"
#include "moelink/device/moe/local_decode.cuh"
#include "moelink/device/moe/local_move.cuh"
#include "moelink/device/moe/local_prefill.cuh"
#include "moelink/device/moe/nvlink_combine.cuh"
#include "moelink/device/moe/nvlink_combine_many.cuh"
#include "moelink/device/moe/nvlink_decode.cuh"
#include "moelink/device/moe/nvlink_prefill.cuh"
#include "moelink/device/moe/tensor_parallel_parts.cuh"
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
  constexpr LocalDevice kGpu{.is_host = false, .max_scratch_bytes = 227 << 10};
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
    if (spec.quantize == QuantFormat::fp8_pow2 || spec.quantize == QuantFormat::mxfp8) continue;  // between the others
    requests.push_back(make_request<LocalPrefill>(with_threads(spec, DispatchVariant::prefill, kGpu)));
  }
  for (const LocalCombineSpec& spec : test::combine_specs()) {
    requests.push_back(make_request<LocalCombine>(with_threads(spec, kGpu)));
  }
  for (const NvlinkCombineSpec& spec : test::nvlink_combine_specs()) {
    requests.push_back(make_request<NvlinkCombine>(with_threads(spec, kGpu, /*whole_sms=*/true)));
  }
  for (const NvlinkCombineSpec& spec : test::nvlink_combine_many_specs()) {
    requests.push_back(make_request<NvlinkCombineMany>(with_many_threads(spec, kGpu)));
  }
  for (const NvlinkDispatchSpec& spec : test::nvlink_dispatch_specs()) {
    requests.push_back(make_request<NvlinkPrefill>(with_prefill_threads(spec, kGpu)));
    if (!nvlink_decode_holds_rows(spec.row_bytes, kGpu)) continue;
    requests.push_back(make_request<NvlinkDecode>(with_decode_threads(spec, kGpu)));
  }
  for (const NvlinkDispatchSpec& spec : test::nvlink_quantizing_specs()) {
    requests.push_back(make_request<NvlinkDecode>(with_decode_threads(spec, kGpu)));
    if (!nvlink_prefill_quantizes(spec, kGpu)) continue;
    requests.push_back(make_request<NvlinkPrefill>(with_prefill_threads(spec, kGpu)));
  }
  for (TensorParallelSpec spec : test::tensor_parallel_specs()) {
    spec.threads = tp_staged_threads(spec.num_ranks);
    requests.push_back(make_request<TensorParallelStaged>(spec));
    const bool is_chosen = spec.two_shot == (spec.num_ranks > 2);
    if (is_chosen || spec.multicast) requests.push_back(make_request<TensorParallelSums>(spec));
    if (spec.two_shot) continue;
    spec.threads = kTpPushThreads;
    requests.push_back(make_request<TensorParallelPush>(spec));
    spec.threads = kTpPartsThreads;
    spec.blocks_per_sm = 2;
    requests.push_back(make_request<TensorParallelParts>(spec));
  }
  requests.push_back(
      make_request<NvlinkCombine>(with_threads(test::nvlink_combine_specs().front(), kGpu, /*whole_sms=*/false)));
  KernelLoader loader(Device::cuda(0));
  (void)AllReduceKernels::add_to(loader, Element::bfloat16, 2, false);
  (void)AllReduceKernels::add_to(loader, Element::float32, 3, false);
  (void)AllReduceKernels::add_to(loader, Element::float16, 4, true);
  (void)AllReduceKernels::add_to(loader, Element::bfloat16, 8, true);
  (void)AllReduceKernels::add_to(loader, Element::bfloat16, 16, false);
  for (KernelRequest& request : loader.requests()) {
    requests.push_back(std::move(request));
  }
  return requests;
}

constexpr const char* kRule =
    "loops with one way out, conditions without && and ||, what is rare in a MOELINK_COLD function "
    "(docs/decisions/0018-convergence-barriers-are-few.md)";

// Compiles `requests` and complains about those that spill, cannot be launched, or let lanes lose each other (NOTE
// [saved barriers], saved_barriers.hpp).
std::vector<std::shared_ptr<const CompiledKernel>> expect_good(const char* architecture,
                                                               const std::vector<KernelRequest>& requests) {
  SCOPED_TRACE(architecture);
  auto kernels = KernelCompiler::shared(architecture).get_all(requests);
  std::map<std::string, std::vector<double>> milliseconds;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const ResourceUsage& usage = kernels[i]->usage;
    EXPECT_FALSE(usage.spills()) << requests[i].expression << "\nspills " << usage.spill_store_bytes << " bytes with "
                                 << usage.registers << " registers";
    EXPECT_LE(usage.registers * requests[i].threads, 65536) << requests[i].expression << " cannot be launched";
    EXPECT_EQ(test::describe_unsafe_barrier_saves(kernels[i]->cubin), "")
        << requests[i].expression << "\nsaves convergence barriers, at these bytes, where lanes may have parted; then "
        << "a barrier of the block can be an illegal instruction. Nest less: " << kRule;
    if (kernels[i]->origin == KernelOrigin::compiler) {
      milliseconds[requests[i].name].push_back(kernels[i]->milliseconds);
    }
  }
  std::printf("%s: %zu specs\n", architecture, requests.size());
  for (const auto& [name, times] : milliseconds) {
    std::printf("  %-24s %3zu compiled now: %.0f ms each, slowest %.0f ms\n", name.c_str(), times.size(),
                std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size()),
                *std::max_element(times.begin(), times.end()));
  }
  return kernels;
}

int registers_available(const KernelRequest& request) { return std::min(255, 65536 / request.threads / 8 * 8); }

// Hopper compiles every spec. Blackwell gets the same source with the same types: a fifth of the specs of each kernel, the
// first and with it every instruction included, and then those of the rest that could spill there though they do not on
// Hopper, going by the most registers that the fifth of its kernel took beyond Hopper's.
TEST(EverySpec, CompilesWithoutSpillsAndUnsafeBarriers) {
  MOELINK_NEEDS_NVRTC();
  const std::vector<KernelRequest> requests = every_request();
  const auto on_hopper = expect_good("sm_90a", requests);

  constexpr std::size_t kStep = 5;
  constexpr int kMargin = 8;  // one step in which registers are allocated
  std::map<std::string, std::vector<std::size_t>> of_kernel;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    of_kernel[requests[i].name].push_back(i);
  }
  std::vector<KernelRequest> fifth;
  std::vector<int> registers_on_hopper;
  for (const auto& [name, places] : of_kernel) {
    for (std::size_t n = 0; n < places.size(); n += kStep) {
      fifth.push_back(requests[places[n]]);
      registers_on_hopper.push_back(on_hopper[places[n]]->usage.registers);
    }
  }
  const auto on_blackwell = expect_good("sm_100a", fifth);
  std::map<std::string, int> increase;
  for (std::size_t i = 0; i < fifth.size(); ++i) {
    int& most = increase[fifth[i].name];
    most = std::max(most, on_blackwell[i]->usage.registers - registers_on_hopper[i]);
  }

  std::vector<KernelRequest> close_to_spilling;
  for (const auto& [name, places] : of_kernel) {
    for (std::size_t n = 0; n < places.size(); ++n) {
      const KernelRequest& request = requests[places[n]];
      const int expected = on_hopper[places[n]]->usage.registers + increase[name] + kMargin;
      if (n % kStep != 0 && expected > registers_available(request)) close_to_spilling.push_back(request);
    }
  }
  (void)expect_good("sm_100a", close_to_spilling);
}

}  // namespace
}  // namespace moelink

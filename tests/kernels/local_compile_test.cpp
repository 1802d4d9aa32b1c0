// Every spec of the local kernels that the tests and the perf tools use, for Hopper and Blackwell, without a GPU: each
// compiles, and no register is spilled.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "jit/support.hpp"
#include "moelink/device/moe/local_combine.cuh"
#include "moelink/device/moe/local_decode.cuh"
#include "moelink/device/moe/local_move.cuh"
#include "moelink/device/moe/local_prefill.cuh"
#include "moelink/protocol/local_plan.hpp"

namespace moelink::test {
namespace {

constexpr LocalDevice kGpu{.is_host = false, .num_sms = 132, .max_scratch_bytes = 227 << 10};

/// Shapes of models, and shapes that make other code: odd scale bytes, top-k beside a power of two, weights on input.
std::vector<LocalDispatchSpec> dispatch_specs() {
  return {
      {.row_bytes = 4096, .scale_bytes = 0, .num_experts = 128, .top_k = 8},
      {.row_bytes = 14336, .scale_bytes = 0, .num_experts = 256, .top_k = 8},
      {.row_bytes = 7168, .scale_bytes = 224, .num_experts = 256, .top_k = 8},
      {.row_bytes = 5760, .scale_bytes = 4, .num_experts = 128, .top_k = 4},
      {.row_bytes = 2048, .scale_bytes = 6, .num_experts = 512, .top_k = 22},
      {.row_bytes = 3584, .scale_bytes = 63, .num_experts = 896, .top_k = 10},
      {.row_bytes = 28672, .scale_bytes = 0, .num_experts = 16384, .top_k = 32},
      {.row_bytes = 10240, .scale_bytes = 0, .num_experts = 128, .top_k = 1},
      {.row_bytes = 4096, .scale_bytes = 0, .num_experts = 60, .top_k = 4, .weighted = Element::bfloat16},
      {.row_bytes = 4096, .scale_bytes = 16, .num_experts = 60, .top_k = 5, .weighted = Element::float16},
      {.row_bytes = 8192, .scale_bytes = 0, .num_experts = 64, .top_k = 8, .weighted = Element::float32},
  };
}

std::vector<LocalCombineSpec> combine_specs() {
  std::vector<LocalCombineSpec> specs;
  for (const Element input : {Element::bfloat16, Element::float16, Element::float32}) {
    for (const Element output : {Element::bfloat16, Element::float16, Element::float32}) {
      specs.push_back({.hidden = 2048, .top_k = 8, .input = input, .output = output});
    }
  }
  for (const int top_k : {1, 2, 4, 5, 6, 10, 16, 22, 32}) {
    specs.push_back({.hidden = 7168, .top_k = top_k, .input = Element::bfloat16, .output = Element::bfloat16});
  }
  specs.push_back({.hidden = 12, .top_k = 32, .input = Element::float32, .output = Element::float32});
  return specs;
}

class LocalCompile : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { MOELINK_NEEDS_NVRTC(); }

  template <class K>
  void expect_no_spills(const typename K::Spec& spec) {
    const KernelRequest request = make_request<K>(spec);
    SCOPED_TRACE(request.expression);
    const CompiledKernel kernel = compile(embedded_sources(), request, GetParam());
    EXPECT_FALSE(kernel.usage.spills()) << kernel.usage.registers << " registers, " << kernel.usage.spill_store_bytes
                                        << " bytes spilled";
  }
};

TEST_P(LocalCompile, DecodeDoesNotSpill) {
  for (const LocalDispatchSpec& spec : dispatch_specs()) {
    expect_no_spills<LocalDecode>(with_threads(spec, DispatchVariant::decode, kGpu));
  }
}

TEST_P(LocalCompile, PrefillDoesNotSpill) {
  for (const LocalDispatchSpec& spec : dispatch_specs()) {
    expect_no_spills<LocalPrefill>(with_threads(spec, DispatchVariant::prefill, kGpu));
  }
}

TEST_P(LocalCompile, MoveDoesNotSpill) {
  for (const LocalDispatchSpec& spec : dispatch_specs()) {
    expect_no_spills<LocalMove>(with_threads(spec, DispatchVariant::move, kGpu));
  }
}

TEST_P(LocalCompile, CombineDoesNotSpill) {
  for (const LocalCombineSpec& spec : combine_specs()) expect_no_spills<LocalCombine>(with_threads(spec, kGpu));
}

INSTANTIATE_TEST_SUITE_P(Architectures, LocalCompile, testing::Values("sm_90a", "sm_100a"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace moelink::test

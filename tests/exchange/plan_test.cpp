// Plans are pure functions of configuration, shape and device: compared here without any device.
#include <gtest/gtest.h>

#include "exchange/local_kernels.hpp"

namespace moelink {
namespace {

constexpr LocalDevice kH200{.is_host = false, .num_sms = 132, .max_scratch_bytes = 232448};
constexpr LocalDevice kHost{.is_host = true, .num_sms = 4, .max_scratch_bytes = 1 << 24};
constexpr LocalDispatchSpec kDeepSeek{.row_bytes = 14336, .num_experts = 256, .top_k = 8};

struct Model {
  i32 num_experts;
  i32 top_k;
  i64 hidden;
};
constexpr Model kModels[] = {{128, 8, 2048}, {256, 8, 7168}, {384, 8, 7168}, {896, 16, 3584}, {512, 10, 2048},
                             {32, 4, 2880},  {128, 1, 5120}, {60, 4, 2048},  {512, 22, 1024}, {16384, 32, 64}};

TEST(LocalPlan, FewEntriesAreDecodedAndOneMoreIsPrefilled) {
  const i64 most = kGpuTuning.decode_max_entries / kDeepSeek.top_k;
  EXPECT_EQ(plan_dispatch(kDeepSeek, 0, false, kH200).variant, DispatchVariant::decode);
  EXPECT_EQ(plan_dispatch(kDeepSeek, most, false, kH200).variant, DispatchVariant::decode);
  EXPECT_EQ(plan_dispatch(kDeepSeek, most + 1, false, kH200).variant, DispatchVariant::prefill);
  EXPECT_EQ(plan_dispatch(kDeepSeek, 1, true, kH200).variant, DispatchVariant::move);
  EXPECT_EQ(plan_dispatch(kDeepSeek, most + 1, true, kH200).variant, DispatchVariant::move);
}

TEST(LocalPlan, TooManyExpertsToSumInEveryBlockAreNeverDecodedNotEvenForNoTokens) {
  LocalDispatchSpec spec = kDeepSeek;
  spec.num_experts = kGpuTuning.decode_max_experts;
  EXPECT_EQ(plan_dispatch(spec, 0, false, kH200).variant, DispatchVariant::decode);
  ++spec.num_experts;
  for (const i64 tokens : {0, 1, 4096}) {
    EXPECT_EQ(plan_dispatch(spec, tokens, false, kH200).variant, DispatchVariant::prefill) << tokens;
  }
}

TEST(LocalPlan, OneTokensRowIsSharedByAsManyBlocksAsHaveWork) {
  EXPECT_EQ(plan_dispatch(kDeepSeek, 1, false, kH200),
            (LocalDispatchPlan{.variant = DispatchVariant::decode,
                               .grid = 5,  // one more for what is known about experts
                               .parts = 4,
                               .ring_bytes = 0,
                               .every_block_counts = 0,
                               .scratch_bytes = DecodeScratch(256).total}));
  const LocalCombineSpec combine{.hidden = 7168, .top_k = 8};
  EXPECT_EQ(plan_combine(combine, 1, kH200), (LocalCombinePlan{.grid = 8, .parts = 8}));
  EXPECT_EQ(plan_combine(combine, 4096, kH200), (LocalCombinePlan{.grid = 4096, .parts = 1}));
}

TEST(LocalPlan, GridBarrierNeverWaitsForABlockThatHasNoSm) {
  for (const i64 tokens : {257, 1000, 4096, 1 << 20}) {
    for (const int max_sms : {0, 1, 24, 1000}) {
      const LocalDispatchPlan plan = plan_dispatch(kDeepSeek, tokens, false, kH200, max_sms);
      EXPECT_LE(plan.grid, max_sms == 0 ? kH200.num_sms : min_of(max_sms, kH200.num_sms));
    }
  }
  for (const i64 tokens : {0, 1, 65, 5000}) {
    EXPECT_LE(plan_dispatch(kDeepSeek, tokens, false, kHost).grid, kHost.num_sms);
    EXPECT_LE(plan_combine({.hidden = 7168, .top_k = 8}, tokens, kHost).grid, kHost.num_sms);
  }
}

TEST(LocalPlan, EveryModelAndTokenCountFitsTheDevice) {
  for (const Model& model : kModels) {
    for (const LocalDevice& device : {kH200, kHost}) {
      for (const i64 tokens : {0, 1, 2, 31, 127, 128, 129, 256, 257, 1000, 4096, 1 << 22}) {
        for (const bool reuse : {false, true}) {
          const LocalDispatchSpec spec{
              .row_bytes = 2 * model.hidden, .num_experts = model.num_experts, .top_k = model.top_k};
          const LocalDispatchPlan plan = plan_dispatch(spec, tokens, reuse, device);
          EXPECT_GE(plan.grid, 1);
          EXPECT_TRUE(plan.parts >= 1 || plan.variant != DispatchVariant::decode) << "decode shares rows by parts";
          EXPECT_LE(plan.scratch_bytes, device.max_scratch_bytes) << describe(plan, spec);
          const LocalCombineSpec combine{.hidden = model.hidden, .top_k = model.top_k};
          EXPECT_GE(plan_combine(combine, tokens, device).grid, 1);
        }
      }
    }
  }
}

TEST(LocalPlan, WorkspaceHoldsTheCountsOfTheLargestGrid) {
  const LocalDispatchPlan plan = plan_dispatch(kDeepSeek, 1 << 20, false, kH200);
  EXPECT_GE(prefill_workspace_words(kDeepSeek, kH200), (plan.grid + 1) * kDeepSeek.num_experts);
}

TEST(LocalPlan, PrintsWhatWillRun) {
  const LocalDispatchPlan plan = plan_dispatch(kDeepSeek, 4096, false, kH200);
  const std::string words = describe(plan, with_threads(kDeepSeek, plan.variant, kH200));
  EXPECT_NE(words.find("dispatch prefill: 132 blocks of"), std::string::npos) << words;
}

}  // namespace
}  // namespace moelink

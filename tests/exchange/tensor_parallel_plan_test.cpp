// How ranks sum is a pure function of what they agree on: compared here without any device.
#include "exchange/modes/tensor_parallel_plan.hpp"

#include <gtest/gtest.h>

#include "moelink/error.hpp"

namespace moelink {
namespace {

constexpr TpFacts kTwo{.num_ranks = 2, .hidden = 7168, .max_tokens = 4096, .max_workers = 65};
constexpr TpFacts kEight{.num_ranks = 8, .hidden = 7168, .max_tokens = 4096, .max_workers = 131};

TpFacts with(TpFacts facts, TensorParallelSum only) {
  facts.only = only;
  return facts;
}

TEST(TensorParallelPlan, FewTokensArePushedMoreAreStagedManyAreSeparate) {
  EXPECT_EQ(plan_tp_combine(kTwo, 1), (TpPlan{.sum = TensorParallelSum::push, .separate = false, .workers = 4}));
  EXPECT_EQ(plan_tp_combine(kTwo, 128).sum, TensorParallelSum::pull);
  EXPECT_FALSE(plan_tp_combine(kTwo, 256).separate);
  EXPECT_TRUE(plan_tp_combine(kTwo, 4096).separate);
  EXPECT_EQ(plan_tp_combine(kEight, 128).sum, TensorParallelSum::two_shot);
  TpFacts with_switch = kEight;
  with_switch.multicast = true;
  EXPECT_EQ(plan_tp_combine(with_switch, 128).sum, TensorParallelSum::nvls);
}

TEST(TensorParallelPlan, WithoutTokensOnlyInputsAreCompared) {
  for (const TensorParallelSum only : {TensorParallelSum::automatic, TensorParallelSum::separate}) {
    const TpPlan plan = plan_tp_combine(with(kTwo, only), 0);
    EXPECT_EQ(plan.workers, 0);
    EXPECT_FALSE(plan.separate) << "a launch that combines nothing";
  }
}

TEST(TensorParallelPlan, ChunksCoverEveryUnitAndFitTheirSlots) {
  for (const i64 hidden : {8, 12, 2056, 7168}) {
    for (const TensorParallelSum only : {TensorParallelSum::pull, TensorParallelSum::two_shot}) {
      TpFacts facts = with(kTwo, only);
      facts.hidden = hidden;
      for (const i64 tokens : {1, 33, 4096}) {
        const TpPlan plan = plan_tp_combine(facts, tokens);
        const i64 unit_bytes = tp_unit_elements(hidden) * 4;
        EXPECT_LE(plan.chunk_units * unit_bytes, kTpSlotBytes);
        EXPECT_GE(plan.chunk_units, 1);
        EXPECT_GE(plan.workers, 1);
        EXPECT_LE(plan.workers, facts.max_workers);
      }
    }
  }
}

TEST(TensorParallelPlan, EveryTokenCountLeadsToAKernelThatConstructionCompiles) {
  for (TpFacts facts : {kTwo, kEight}) {
    for (const TensorParallelSum only : {TensorParallelSum::automatic, TensorParallelSum::push, TensorParallelSum::pull,
                                         TensorParallelSum::two_shot, TensorParallelSum::separate}) {
      facts.only = only;
      const std::vector<TpPlan> kinds = kinds_of_plans(facts);
      for (i64 tokens = 0; tokens <= facts.max_tokens; ++tokens) {
        const TpPlan plan = plan_tp_combine(facts, tokens);
        bool found = false;
        for (const TpPlan& kind : kinds) found = found || (kind.sum == plan.sum && kind.separate == plan.separate);
        ASSERT_TRUE(found) << describe(plan) << " for " << tokens << " tokens";
      }
    }
  }
}

TEST(TensorParallelPlan, PushHasAnItemForEveryUnitItMayCarry) {
  for (const TpFacts& facts : {kTwo, kEight, with(kTwo, TensorParallelSum::push)}) {
    const i64 num_items = tp_layout(facts).num_items;
    for (i64 tokens = 0; tokens <= facts.max_tokens; ++tokens) {
      if (plan_tp_combine(facts, tokens).sum != TensorParallelSum::push) continue;
      ASSERT_LE(tokens * facts.hidden / 8, num_items * kTpItemUnits) << tokens;
    }
  }
}

TEST(TensorParallelPlan, FewerSmsAreFewerBlocksAndNeverNone) {
  for (const int max_sms : {1, 2, 24, 1000}) {
    const TpPlan plan = plan_tp_combine(kTwo, 128, max_sms);
    EXPECT_LE(plan.workers, max_of(max_sms - 1, 1));
    EXPECT_GE(plan.workers, 1);
  }
}

TEST(TensorParallelPlan, PushAloneForMoreThanItsLinesHoldIsRefused) {
  TpFacts facts = with(kEight, TensorParallelSum::push);
  facts.max_tokens = 1 << 20;
  EXPECT_THROW(check_push_alone(facts), Error);
  facts.max_tokens = 64;
  EXPECT_NO_THROW(check_push_alone(facts));
}

}  // namespace
}  // namespace moelink

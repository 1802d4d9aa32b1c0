// How ranks sum is a pure function of what they agree on: compared here without any device.
#include "exchange/modes/tensor_parallel_plan.hpp"

#include <gtest/gtest.h>

#include "moelink/error.hpp"

namespace moelink {
namespace {

constexpr TpFacts kTwo{.num_ranks = 2, .hidden = 7168, .max_tokens = 4096, .max_workers = 65};
constexpr TpFacts kEight{.num_ranks = 8, .hidden = 7168, .max_tokens = 4096, .max_workers = 131};

constexpr i64 kRounded = 2;  // bytes of an element on its way
constexpr i64 kFp32 = 4;

TpFacts with(TpFacts facts, TensorParallelSum only) {
  facts.only = only;
  return facts;
}

TEST(TensorParallelPlan, FewTokensArePushedMoreAreStagedManyAreSeparate) {
  EXPECT_EQ(plan_tp_combine(kTwo, kRounded, 1), (TpPlan{.sum = TensorParallelSum::push, .workers = 4}));
  EXPECT_EQ(plan_tp_combine(kTwo, kRounded, 128),
            (TpPlan{.sum = TensorParallelSum::pull, .workers = 65, .chunk_tiles = 28}));
  EXPECT_TRUE(plan_tp_combine(kTwo, kRounded, 4096).separate);
  EXPECT_EQ(plan_tp_combine(kEight, kRounded, 64).sum, TensorParallelSum::two_shot);
  TpFacts with_switch = kEight;
  with_switch.multicast = true;
  EXPECT_EQ(plan_tp_combine(with_switch, kRounded, 64).sum, TensorParallelSum::nvls);
}

// 512 KiB of parts and 8 MiB: 36.6 and 585.1 tokens of 14 KiB, half as many with parts in fp32.
TEST(TensorParallelPlan, TwoRanksChangeTheWayWhereItWasMeasured) {
  EXPECT_EQ(plan_tp_combine(kTwo, kRounded, 36).sum, TensorParallelSum::push);
  EXPECT_EQ(plan_tp_combine(kTwo, kRounded, 37).sum, TensorParallelSum::pull);
  EXPECT_EQ(plan_tp_combine(kTwo, kFp32, 18).sum, TensorParallelSum::push);
  EXPECT_EQ(plan_tp_combine(kTwo, kFp32, 19).sum, TensorParallelSum::pull);
  EXPECT_FALSE(plan_tp_combine(kTwo, kRounded, 585).separate);
  EXPECT_TRUE(plan_tp_combine(kTwo, kRounded, 586).separate);
  EXPECT_FALSE(plan_tp_combine(kTwo, kFp32, 292).separate);
  EXPECT_TRUE(plan_tp_combine(kTwo, kFp32, 293).separate);
}

TEST(TensorParallelPlan, WithoutTokensOnlyInputsAreCompared) {
  for (const TensorParallelSum only : {TensorParallelSum::automatic, TensorParallelSum::separate}) {
    const TpPlan plan = plan_tp_combine(with(kTwo, only), kRounded, 0);
    EXPECT_EQ(plan.workers, 0);
    EXPECT_FALSE(plan.separate) << "a launch that combines nothing";
  }
}

TEST(TensorParallelPlan, ChunksCoverEveryTileAndFitTheirSlots) {
  for (const i64 hidden : {8, 12, 2056, 7168}) {
    for (const TensorParallelSum only : {TensorParallelSum::pull, TensorParallelSum::two_shot}) {
      TpFacts facts = with(kTwo, only);
      facts.hidden = hidden;
      for (const i64 tokens : {1, 33, 4096}) {
        const TpPlan plan = plan_tp_combine(facts, kRounded, tokens);
        const i64 tiles = tokens * ceil_div(hidden / tp_unit_elements(hidden), i64{kTpTileUnits});
        EXPECT_LE(plan.chunk_tiles, kTpChunkTiles);
        EXPECT_GE(plan.chunk_tiles, 1);
        EXPECT_GE(plan.workers, 1);
        EXPECT_LE(plan.workers, facts.max_workers);
        const i64 of_step = plan.chunk_tiles * plan.workers;
        EXPECT_LE(ceil_div(tiles, of_step), ceil_div(tiles, i64{plan.workers} * kTpChunkTiles)) << "more steps";
      }
    }
  }
}

TEST(TensorParallelPlan, EveryTokenCountLeadsToAKernelThatConstructionCompiles) {
  for (TpFacts facts : {kTwo, kEight}) {
    for (const TensorParallelSum only : {TensorParallelSum::automatic, TensorParallelSum::push, TensorParallelSum::pull,
                                         TensorParallelSum::two_shot, TensorParallelSum::separate}) {
      facts.only = only;
      for (const i64 part_bytes : {kRounded, kFp32}) {
        const std::vector<TpPlan> kinds = kinds_of_plans(facts, part_bytes);
        for (i64 tokens = 0; tokens <= facts.max_tokens; ++tokens) {
          const TpPlan plan = plan_tp_combine(facts, part_bytes, tokens);
          bool found = false;
          for (const TpPlan& kind : kinds) found = found || (kind.sum == plan.sum && kind.separate == plan.separate);
          ASSERT_TRUE(found) << describe(plan) << " for " << tokens << " tokens";
        }
      }
    }
  }
}

TEST(TensorParallelPlan, PushHasAnItemForEveryUnitItMayCarryAndNoneOfTwoSizes) {
  for (TpFacts facts : {kTwo, kEight, with(kTwo, TensorParallelSum::push)}) {
    facts.max_tokens = min_of<i64>(facts.max_tokens, 1000);
    facts.has_wide_parts = true;
    const i64 ends[] = {first_tp_item(facts, kFp32), tp_layout(facts).num_items};
    EXPECT_EQ(first_tp_item(facts, kRounded), 0);
    for (const i64 part_bytes : {kRounded, kFp32}) {
      const i64 num_items = ends[part_bytes / 4] - first_tp_item(facts, part_bytes);
      for (i64 tokens = 0; tokens <= facts.max_tokens; ++tokens) {
        if (plan_tp_combine(facts, part_bytes, tokens).sum != TensorParallelSum::push) continue;
        ASSERT_LE(tokens * facts.hidden / 8, num_items * kTpItemUnits) << tokens;
      }
    }
  }
}

TEST(TensorParallelPlan, PartsHaveAPlaceWhereverALaunchLeavesThem) {
  EXPECT_EQ(tp_sizes(kTwo).parts_bytes, kTwo.max_tokens * kTwo.hidden * kRounded);
  TpFacts facts = kTwo;
  facts.has_wide_parts = true;
  EXPECT_EQ(tp_sizes(facts).parts_bytes, facts.max_tokens * facts.hidden * kFp32);
  facts.max_tokens = 16;
  EXPECT_EQ(tp_sizes(facts).parts_bytes, 0) << "never separate";
  EXPECT_NE(tp_sizes(with(facts, TensorParallelSum::separate)).parts_bytes, 0);
}

TEST(TensorParallelPlan, FewerSmsAreFewerBlocksAndNeverNone) {
  for (const int max_sms : {1, 2, 24, 1000}) {
    const TpPlan fused = plan_tp_combine(kTwo, kRounded, 128, max_sms);
    EXPECT_LE(fused.workers, max_of(max_sms - 1, 1));
    EXPECT_GE(fused.workers, 1);
    const TpPlan separate = plan_tp_combine(kTwo, kRounded, 4096, max_sms);
    EXPECT_LE(separate.parts_blocks, max_sms);
    EXPECT_GE(separate.parts_blocks, 1);
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

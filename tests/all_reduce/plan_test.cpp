#include "all_reduce/plan.hpp"

#include <gtest/gtest.h>

namespace moelink {
namespace {

TEST(AllReducePlan, EveryElementBelongsToABlockWhateverTheSize) {
  for (const int num_ranks : {1, 2, 3, 8, 64}) {
    for (const bool on_host : {false, true}) {
      const AllReduceFacts facts{.num_ranks = num_ranks, .max_staged_blocks = on_host ? 6 : 128, .on_host = on_host};
      for (i64 elements = 1; elements < (i64{1} << 33); elements = elements * 3 + 1) {
        const AllReducePlan plan = plan_all_reduce(facts, elements);
        const i64 vectors = ceil_div<i64>(elements * 2, 16);
        ASSERT_GE(plan.grid, 1);
        if (plan.algorithm == AllReduceAlgorithm::push) {
          EXPECT_LE(plan.grid, kMaxPushBlocks);
          EXPECT_GE(i64{plan.grid} * kPushThreads, vectors);
        } else if (plan.algorithm == AllReduceAlgorithm::pack) {
          EXPECT_LE(plan.grid, facts.max_pack_blocks);
          EXPECT_LE(plan.chunk_vectors * 16, kPackSlotBytes);
          EXPECT_EQ(plan.chunk_vectors % kPackGroupVectors, 0);
          EXPECT_GE(plan.grid * plan.chunk_vectors, vectors);
          EXPECT_LT((plan.grid - 1) * plan.chunk_vectors, vectors) << "a block that would wait for nothing";
        } else {
          EXPECT_LE(plan.grid, facts.max_staged_blocks);
          EXPECT_GE(plan.chunk_vectors, 1);
          const bool is_stream = plan.algorithm == AllReduceAlgorithm::stream;
          EXPECT_LE(plan.chunk_vectors * 16, is_stream ? stream_slot_bytes(num_ranks) : kSlotBytes);
          EXPECT_GE(plan.grid * plan.chunk_vectors * plan.num_steps, vectors);
          EXPECT_LT(plan.grid * plan.chunk_vectors * (plan.num_steps - 1), vectors) << "a step with nothing to do";
        }
      }
    }
  }
}

TEST(AllReducePlan, ChoiceGoesFromPushOverStreamToTwoShotAsMessagesGrow) {
  const AllReduceFacts facts{.num_ranks = 4};
  int last = 0;
  for (i64 elements = 1; elements < (i64{1} << 28); elements *= 2) {
    const int now = static_cast<int>(plan_all_reduce(facts, elements).algorithm);
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_EQ(last, static_cast<int>(AllReduceAlgorithm::two_shot));
}

TEST(AllReducePlan, TwoRanksPackMiddleSizesWhereTheyCan) {
  const auto chosen = [](AllReduceFacts facts, i64 bytes) {
    facts.num_ranks = 2;
    return plan_all_reduce(facts, bytes / 2).algorithm;
  };
  EXPECT_EQ(chosen({}, 64 << 10), AllReduceAlgorithm::push);
  EXPECT_EQ(chosen({}, (64 << 10) + 2), AllReduceAlgorithm::pack);
  EXPECT_EQ(chosen({}, 2 << 20), AllReduceAlgorithm::pack);
  EXPECT_EQ(chosen({}, (2 << 20) + 2), AllReduceAlgorithm::stream);
  EXPECT_EQ(chosen({.max_pack_blocks = 0}, 256 << 10), AllReduceAlgorithm::stream) << "where it cannot be";
  EXPECT_EQ(chosen({.max_pack_blocks = 16}, 1 << 20), AllReduceAlgorithm::stream) << "more than its blocks hold";
  EXPECT_EQ(chosen({.on_host = true}, 256 << 10), AllReduceAlgorithm::stream);
}

TEST(AllReducePlan, MulticastIsUsedForLargeMessagesOnlyWhereItMayBe) {
  EXPECT_EQ(plan_all_reduce({.num_ranks = 8, .multicast = true}, 1 << 26).algorithm, AllReduceAlgorithm::nvls);
  EXPECT_EQ(plan_all_reduce({.num_ranks = 8, .multicast = false}, 1 << 26).algorithm, AllReduceAlgorithm::two_shot);
}

TEST(AllReducePlan, SlotsOfManyRanksTakeNoMoreMemoryThanThoseOfTwo) {
  for (const int num_ranks : {1, 3, 4, 8, 64, 1000}) {
    EXPECT_LE(stream_staging_bytes(num_ranks), stream_staging_bytes(2)) << num_ranks;
  }
}

TEST(AllReducePlan, PrintsItself) {
  EXPECT_EQ(to_string(AllReducePlan{.algorithm = AllReduceAlgorithm::push, .grid = 4}), "push grid=4x64");
  EXPECT_EQ(to_string(AllReducePlan{.algorithm = AllReduceAlgorithm::pack, .grid = 3, .chunk_vectors = 96}),
            "pack grid=3x256 chunk=1536");
  EXPECT_EQ(to_string(AllReducePlan{.algorithm = AllReduceAlgorithm::two_shot, .grid = 128, .chunk_vectors = 2048}),
            "two_shot grid=128x512 chunk=32768");
}

}  // namespace
}  // namespace moelink

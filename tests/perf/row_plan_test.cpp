#include "perf/reference/row_plan.hpp"

#include <gtest/gtest.h>

namespace moelink::perf {
namespace {

using Longs = std::vector<std::int64_t>;
using Ints = std::vector<std::int32_t>;

/// Three tokens, top-2, four experts; an unused entry, a duplicate, an id that is none.
Routing example() {
  return {.num_tokens = 3,
          .num_experts = 4,
          .top_k = 2,
          .expert_ids = {2, 0, 2, 2, -1, 9},
          .weights = std::vector<float>(6, 1)};
}

/// Another source, of one token.
Routing second() {
  return {.num_tokens = 1, .num_experts = 4, .top_k = 2, .expert_ids = {2, 3}, .weights = std::vector<float>(2, 1)};
}

const Placement kOneRank = make_placement(1, 1, 4, 1);
const Placement kTwoRanks = make_placement(2, 1, 4, 1);

TEST(RowPlan, PackedRowsAreInOrderOfEntriesAndAligned) {
  const RowPlan plan = plan_packed_rows(Sources({example()}), kOneRank, 0, 4);
  EXPECT_EQ(plan.offsets, (Longs{0, 4, 4, 8, 8}));
  EXPECT_EQ(plan.counts, (Ints{1, 0, 3, 0}));
  EXPECT_EQ(plan.entry_of_row, (Longs{1, -1, -1, -1, 0, 2, 3, -1}));
  EXPECT_EQ(plan.expert_of_row, (Ints{0, -1, -1, -1, 2, 2, 2, -1}));
  EXPECT_EQ(plan.row_of_entry, (Longs{4, 0, 5, 6, -1, -1}));
  EXPECT_EQ(plan.expert_of_entry, (Ints{2, 0, 2, 2, -1, -1}));
  EXPECT_EQ(plan.kept, 4);
  EXPECT_EQ(plan.out_of_range, 1);
}

TEST(RowPlan, BatchedDropsTheLatestEntriesOfAFullExpert) {
  const Sources sources({example()});
  const RowPlan plan = plan_batched_rows(sources, kOneRank, 0, 2);
  EXPECT_EQ(plan.offsets, (Longs{0, 2, 4, 6, 8}));
  EXPECT_EQ(plan.counts, (Ints{1, 0, 2, 0}));
  EXPECT_EQ(plan.entry_of_row, (Longs{1, -1, -1, -1, 0, 2, -1, -1}));
  EXPECT_EQ(plan.row_of_entry, (Longs{4, 0, 5, -1, -1, -1}));
  EXPECT_EQ(plan.over_capacity, 1);
  EXPECT_EQ(plan.dropped_by_peers, 0);
  EXPECT_EQ(fullest_expert(sources, kOneRank), 3);
}

TEST(RowPlan, RankHasRowsOfItsExpertsFromAllSources) {
  const Sources sources({example(), second()});
  const RowPlan plan = plan_packed_rows(sources, kTwoRanks, 1, 1);
  EXPECT_EQ(plan.offsets, (Longs{0, 4, 5}));
  EXPECT_EQ(plan.expert_of_row, (Ints{0, 0, 0, 0, 1}));
  EXPECT_EQ(plan.entry_of_row, (Longs{0, 2, 3, 6, 7}));  // entry 6 is the second source's first
  EXPECT_EQ(plan.expert_of_entry, (Ints{2, 3}));
  EXPECT_EQ(plan.out_of_range, 0);  // the other source's
  EXPECT_EQ(most_packed_rows(sources, kTwoRanks, 1), 5);
}

TEST(RowPlan, DropsAreSeenAtTheSourceToo) {
  const Sources sources({example(), second()});
  const RowPlan full = plan_batched_rows(sources, kTwoRanks, 1, 2);
  EXPECT_EQ(full.over_capacity, 2);
  EXPECT_EQ(full.dropped_by_peers, 0);
  EXPECT_EQ(full.expert_of_entry, (Ints{-1, 3}));
  const RowPlan source = plan_batched_rows(sources, kTwoRanks, 0, 2);
  EXPECT_EQ(source.over_capacity, 0);
  EXPECT_EQ(source.dropped_by_peers, 1);
  EXPECT_EQ(source.expert_of_entry, (Ints{2, 0, 2, -1, -1, -1}));
}

TEST(Placement, EveryExpertHasItsOwnerAlsoWhereTheyDoNotDivide) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::int64_t experts : {1, 3, 8, 60, 257}) {
      const Placement placement = make_placement(ranks, 1, experts, 1);
      for (std::int64_t expert = 0; expert < experts; ++expert) {
        const int owner = placement.owner_of(expert);
        EXPECT_LE(placement.first_expert(owner), expert) << ranks << " ranks, " << experts << " experts";
        EXPECT_GT(placement.first_expert(owner + 1), expert) << ranks << " ranks, " << experts << " experts";
      }
    }
  }
}

TEST(Placement, ReplicasAreAllThereOnceAndTakeTurns) {
  const Placement placement = make_placement(2, 1, 5, 3);  // 1, 2, 3, 1, 2 places
  EXPECT_EQ(placement.num_experts, 9);
  EXPECT_EQ(placement.expert_map, (Ints{0, -1, -1, 1, 5, -1, 2, 6, 8, 3, -1, -1, 4, 7, -1}));
  EXPECT_EQ(placement.physical_expert(0, 0, 2), 2);
  EXPECT_EQ(placement.physical_expert(1, 1, 2), 8);
  EXPECT_EQ(placement.physical_expert(1, 2, 2), 2);
  EXPECT_EQ(placement.physical_expert(1, 2, 0), 0);
}

}  // namespace
}  // namespace moelink::perf

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

TEST(RowPlan, PackedRowsAreInOrderOfEntriesAndAligned) {
  const RowPlan plan = plan_packed_rows(example(), 4);
  EXPECT_EQ(plan.offsets, (Longs{0, 4, 4, 8, 8}));
  EXPECT_EQ(plan.counts, (Ints{1, 0, 3, 0}));
  EXPECT_EQ(plan.entry_of_row, (Longs{1, -1, -1, -1, 0, 2, 3, -1}));
  EXPECT_EQ(plan.expert_of_row, (Ints{0, -1, -1, -1, 2, 2, 2, -1}));
  EXPECT_EQ(plan.row_of_entry, (Longs{4, 0, 5, 6, -1, -1}));
  EXPECT_EQ(plan.kept, 4);
  EXPECT_EQ(plan.out_of_range, 1);
}

TEST(RowPlan, BatchedDropsTheLatestEntriesOfAFullExpert) {
  const RowPlan plan = plan_batched_rows(example(), 2);
  EXPECT_EQ(plan.offsets, (Longs{0, 2, 4, 6, 8}));
  EXPECT_EQ(plan.counts, (Ints{1, 0, 2, 0}));
  EXPECT_EQ(plan.entry_of_row, (Longs{1, -1, -1, -1, 0, 2, -1, -1}));
  EXPECT_EQ(plan.row_of_entry, (Longs{4, 0, 5, -1, -1, -1}));
  EXPECT_EQ(plan.over_capacity, 1);
  EXPECT_EQ(fullest_expert(example()), 3);
}

}  // namespace
}  // namespace moelink::perf

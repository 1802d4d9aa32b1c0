// The reference for several ranks, against values worked out by hand.
#include <gtest/gtest.h>

#include "reference/ranks_moe.hpp"

namespace moelink::reference {
namespace {

using Ids = std::vector<std::int64_t>;
using Floats = std::vector<float>;

/// Two ranks, three experts: rank 0 has expert 0, rank 1 has experts 1 and 2. Two tokens of rank 0, one of rank 1.
RanksInput two_sources() {
  return {.num_ranks = 2,
          .num_experts = 3,
          .top_k = 2,
          .max_tokens = 4,
          .sources = {{2, Ids{2, 0, -1, 1}, Floats{1, 2, 3, 4}}, {1, Ids{2, 2}, Floats{5, 6}}},
          .alignment = 2,
          .capacity = 8};
}

TEST(RanksReferenceRoute, OrdersByExpertThenSourceThenTokenThenK) {
  const std::vector<RankRouting> ranks = route_ranks(two_sources());
  EXPECT_EQ(ranks[0].rows.offsets, (Ids{0, 2}));
  EXPECT_EQ(ranks[0].rows.source_of_row, (Ids{1, -1}));
  EXPECT_EQ(ranks[1].rows.offsets, (Ids{0, 2, 6}));
  EXPECT_EQ(ranks[1].rows.counts, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(ranks[1].rows.source_of_row, (Ids{3, -1, 0, 8, 9, -1}));  // rank 1's token 0 is (1 * 4 + 0) * 2
  EXPECT_EQ(ranks[1].rows.expert_of_row, (std::vector<std::int32_t>{0, -1, 1, 1, 1, -1}));
  EXPECT_EQ(ranks[1].rows.weight_of_row[4], 6.0F);
  EXPECT_EQ(ranks[1].row_of(0, 0), 2);
  EXPECT_EQ(ranks[0].row_of(0, 0), -1);
}

TEST(RanksReferenceRoute, CountsDropsAtTheirSourceAndBadIdsAtTheRankThatPassedThem) {
  RanksInput in = two_sources();
  in.alignment = 1;
  in.capacity = 3;
  in.sources[0].ids[2] = 7;
  const std::vector<RankRouting> ranks = route_ranks(in);
  EXPECT_EQ(ranks[1].rows.rows_over_capacity, 1);
  EXPECT_EQ(ranks[1].dropped, (Ids{0, 1}));  // the last row goes: rank 1's second entry
  EXPECT_EQ(ranks[1].row_of(1, 1), -1);
  EXPECT_EQ(ranks[0].ids_out_of_range, 1);
  EXPECT_EQ(ranks[1].ids_out_of_range, 0);
}

TEST(RanksReferenceRoute, ReplicasTakeTurnsByGroupAndToken) {
  // Logical expert 0 lives in physical 0 and 2, expert 1 in 1 alone; physical experts {0, 1} are rank 0's.
  const RanksInput in{.num_ranks = 2,
                      .num_experts = 2,
                      .top_k = 1,
                      .max_tokens = 3,
                      .expert_map = {0, 2, 1, -1},
                      .num_physical_experts = 4,
                      .max_replicas = 2,
                      .sources = {{3, Ids{0, 0, 1}}, {2, Ids{0, 0}}},
                      .capacity = 8};
  const std::vector<RankRouting> ranks = route_ranks(in);
  EXPECT_EQ(ranks[0].rows.source_of_row, (Ids{0, 4, 2}));  // (0,0), (1,1), then expert 1
  EXPECT_EQ(ranks[1].rows.source_of_row, (Ids{1, 3}));
}

TEST(RanksReferenceRoute, MembersOfAGroupAreOneSource) {
  const RanksInput in{.num_ranks = 4,
                      .tp_size = 2,
                      .num_experts = 4,
                      .top_k = 1,
                      .max_tokens = 1,
                      .sources = {{1, Ids{3}}, {1, Ids{3}}},
                      .capacity = 4};
  EXPECT_EQ(route_rank(in, 3).rows.source_of_row, (Ids{0, 2}));
}

/// Rows of rank 0: one; of rank 1: expert 1's token 1, then expert 2's three. One column.
const Floats kRowsOfRank0 = {10};
const Floats kRowsOfRank1 = {20, 1, 2, 3};

RanksCombineInput combine_input() {
  return {.hidden = 1,
          .expert_output = {kRowsOfRank0.data(), kRowsOfRank1.data()},
          .expert_output_type = DataType::float32,
          .output_type = DataType::float32};
}

TEST(RanksReferenceCombine, DataParallelAddsPartsOfRanks) {
  RanksInput in = two_sources();
  in.alignment = 1;
  const auto ranks = route_ranks(in);
  RanksCombineInput combine = combine_input();
  Floats output = {100, 100};
  combine.accumulate = true;
  combine_data_parallel(in, ranks, combine, 0, output.data());
  EXPECT_EQ(output, (Floats{100 + 2 * 10 + 1, 100 + 4 * 20}));
  Floats second = {-1};
  combine.accumulate = false;
  combine_data_parallel(in, ranks, combine, 1, second.data());
  EXPECT_EQ(second, (Floats{5 * 2 + 6 * 3}));
}

TEST(RanksReferenceCombine, PartsAreRoundedUnlessTheyStayFp32) {
  // 1 + 2^-8 is halfway between two bf16 values: the part rounds down, so that rank 1's part cannot decide.
  const RanksInput in{.num_ranks = 2,
                      .num_experts = 4,
                      .top_k = 3,
                      .max_tokens = 1,
                      .sources = {{1, Ids{0, 1, 2}, Floats{1, 0x1p-8F, 0x1p-9F}}, {0}},
                      .capacity = 4};
  const auto ranks = route_ranks(in);
  const std::uint16_t one = bfloat16_bits(1);
  const std::vector<std::uint16_t> rows = {one, one};
  RanksCombineInput combine{.hidden = 1,
                            .expert_output = {rows.data(), rows.data()},
                            .expert_output_type = DataType::bfloat16,
                            .output_type = DataType::float32};
  float output = 0;
  combine_data_parallel(in, ranks, combine, 0, &output);
  EXPECT_EQ(output, 1 + 0x1p-9F);
  combine.fp32_partials = true;
  combine_data_parallel(in, ranks, combine, 0, &output);
  EXPECT_EQ(output, 1 + 0x1p-8F + 0x1p-9F);
}

TEST(RanksReferenceCombine, TensorParallelRoundsEveryPartAndTheOldOutputWithRankZeros) {
  // 1 + 2^-8 is halfway between two bf16 values, and rounds down; with 2^-9 more it rounds up.
  const RanksInput in{.num_ranks = 2,
                      .tp_size = 2,
                      .num_experts = 4,
                      .top_k = 3,
                      .max_tokens = 1,
                      .sources = {{1, Ids{0, 1, 2}, Floats{1, 0x1p-8F, 0x1p-9F}}},
                      .capacity = 4};
  const auto ranks = route_ranks(in);
  const std::uint16_t one = bfloat16_bits(1);
  const std::vector<std::uint16_t> rows = {one, one};
  RanksCombineInput combine{.hidden = 1,
                            .expert_output = {rows.data(), rows.data()},
                            .expert_output_type = DataType::bfloat16,
                            .output_type = DataType::bfloat16};
  std::uint16_t output = 0;
  combine_tensor_parallel(in, ranks, combine, &output);
  EXPECT_EQ(output, one) << "rank 0's part rounds down, so that rank 1's cannot decide";
  combine.fp32_partials = true;
  combine_tensor_parallel(in, ranks, combine, &output);
  EXPECT_EQ(output, bfloat16_bits(1 + 0x1p-7F));
  combine.fp32_partials = false;
  combine.accumulate = true;
  output = bfloat16_bits(0x1p-9F);
  combine_tensor_parallel(in, ranks, combine, &output);
  EXPECT_EQ(output, bfloat16_bits(1 + 0x1p-7F)) << "what was there decides with rank 0's part";
}

TEST(RanksReferenceCombine, TensorParallelAddsEveryRanksRowsAndItsShare) {
  RanksInput in = two_sources();
  in.tp_size = 2;
  in.sources.pop_back();
  const auto ranks = route_ranks(in);
  const Floats rank1 = {20, -1, 1, -1};
  RanksCombineInput combine = combine_input();
  combine.expert_output[1] = rank1.data();
  const Floats shared0 = {1000, 2000};
  const Floats shared1 = {0.5F, 0.25F};
  combine.shared = {shared0.data(), shared1.data()};
  Floats output = {7, 8};
  combine_tensor_parallel(in, ranks, combine, output.data());
  EXPECT_EQ(output, (Floats{2 * 10 + 1000 + 1 + 0.5F, 2000 + 4 * 20 + 0.25F}));
  combine.accumulate = true;
  combine.shared.clear();
  output = {7, 8};
  combine_tensor_parallel(in, ranks, combine, output.data());
  EXPECT_EQ(output, (Floats{7 + 2 * 10 + 1, 8 + 4 * 20}));
}

}  // namespace
}  // namespace moelink::reference

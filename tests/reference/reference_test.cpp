// The reference itself, against values worked out by hand: everything else is compared with it.
#include <gtest/gtest.h>

#include "reference/local_moe.hpp"

namespace moelink::reference {
namespace {

using Ids = std::vector<std::int64_t>;

TEST(ReferenceElement, RoundsTiesToEven) {
  EXPECT_EQ(bfloat16_bits(1.0F), 0x3f80);
  EXPECT_EQ(bfloat16_bits(1.00390625F), 0x3f80);  // halfway to 0x3f81: to even, down
  EXPECT_EQ(bfloat16_bits(1.01171875F), 0x3f82);  // halfway between 0x3f81 and 0x3f82: to even, up
  EXPECT_EQ(float16_bits(1.00048828125F), 0x3c00);
  EXPECT_EQ(float16_bits(1.00146484375F), 0x3c02);
}

TEST(ReferenceElement, KeepsZerosSubnormalsAndInfinities) {
  EXPECT_EQ(bfloat16_bits(-0.0F), 0x8000);
  EXPECT_EQ(float16_bits(-0.0F), 0x8000);
  EXPECT_EQ(float16_bits(std::ldexp(1.0F, -24)), 0x0001);
  EXPECT_EQ(float16_bits(std::ldexp(1.0F, -25)), 0x0000);
  EXPECT_EQ(float16_bits(-65504.0F), 0xfbff);
  EXPECT_EQ(float16_bits(65520.0F), 0x7c00);
  EXPECT_EQ(bfloat16_bits(3.4028235e38F), 0x7f80);
  EXPECT_EQ(bfloat16_bits(std::ldexp(1.0F, -133)), 0x0001);
}

TEST(ReferenceElement, EveryHalfSurvivesThereAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (!std::isnan(float16_value(half))) {
      EXPECT_EQ(float16_bits(float16_value(half)), half);
    }
    if (!std::isnan(bfloat16_value(half))) {
      EXPECT_EQ(bfloat16_bits(bfloat16_value(half)), half);
    }
  }
}

TEST(ReferenceRoute, OrdersByExpertThenTokenThenKAndPads) {
  const RoutingInput in{.num_experts = 3,
                        .top_k = 2,
                        .num_tokens = 3,
                        .ids = Ids{2, 0, 0, 0, -1, 2},
                        .weights = {1, 2, 3, 4, 5, 6},
                        .alignment = 4,
                        .capacity = 8};
  const Routing out = route(in);
  EXPECT_EQ(out.offsets, (std::vector<std::int64_t>{0, 4, 4, 8}));
  EXPECT_EQ(out.counts, (std::vector<std::int32_t>{3, 0, 2}));
  EXPECT_EQ(out.row_of_entry, (std::vector<std::int32_t>{4, 0, 1, 2, -1, 5}));
  EXPECT_EQ(out.expert_of_row, (std::vector<std::int32_t>{0, 0, 0, -1, 2, 2, -1, -1}));
  EXPECT_EQ(out.source_of_row, (std::vector<std::int64_t>{1, 2, 3, -1, 0, 5, -1, -1}));
  EXPECT_EQ(out.weight_of_row[5], 6.0F);
  EXPECT_EQ(out.ids_out_of_range + out.rows_over_capacity, 0);
}

TEST(ReferenceRoute, DropsWhatDoesNotFitAndWhatIsNoExpert) {
  const RoutingInput in{.num_experts = 2, .top_k = 1, .num_tokens = 5, .ids = Ids{1, 0, 0, 2, -2}, .capacity = 2};
  const Routing out = route(in);
  EXPECT_EQ(out.row_of_entry, (std::vector<std::int32_t>{-1, 0, 1, -1, -1}));
  EXPECT_EQ(out.offsets, (std::vector<std::int64_t>{0, 2, 2}));
  EXPECT_EQ(out.ids_out_of_range, 2);
  EXPECT_EQ(out.rows_over_capacity, 1);
}

TEST(ReferenceRoute, BatchedExpertsStartAtMultiplesOfTheCapacity) {
  const RoutingInput in{
      .num_experts = 2, .top_k = 1, .num_tokens = 3, .ids = Ids{1, 1, 1}, .layout = Layout::batched, .capacity = 2};
  const Routing out = route(in);
  EXPECT_EQ(out.offsets, (std::vector<std::int64_t>{0, 2, 4}));
  EXPECT_EQ(out.row_of_entry, (std::vector<std::int32_t>{2, 3, -1}));
  EXPECT_EQ(out.expert_of_row, (std::vector<std::int32_t>{-1, -1, 1, 1}));
  EXPECT_EQ(out.rows_over_capacity, 1);
}

TEST(ReferenceCombine, SumsWeightedRowsAndSkipsDroppedOnes) {
  const Routing routing =
      route({.num_experts = 2, .top_k = 2, .num_tokens = 2, .ids = Ids{1, 0, 1, -1}, .capacity = 4});
  const std::vector<float> rows = {10, 20, 1, 2, 3, 4};  // expert 0: token 0; expert 1: tokens 0 and 1
  std::vector<float> output = {100, 100, 100, 100};
  combine({.top_k = 2,
           .num_tokens = 2,
           .hidden = 2,
           .expert_output = rows.data(),
           .expert_output_type = DataType::float32,
           .output_type = DataType::float32,
           .weights = {0.5F, 2, 3, 9},
           .accumulate = true},
          routing, output.data());
  EXPECT_EQ(output, (std::vector<float>{120.5F, 141, 109, 112}));
}

}  // namespace
}  // namespace moelink::reference

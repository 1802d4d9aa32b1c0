// The launch of NvlinkDecode as a pure function.
#include "moelink/protocol/nvlink_decode_plan.hpp"
#include "moelink/protocol/nvlink_combine_plan.hpp"

#include <gtest/gtest.h>

namespace moelink {
namespace {

constexpr LocalDevice kGpu{.num_sms = 132, .max_scratch_bytes = 200 << 10};
constexpr LocalDevice kHost{.is_host = true, .num_sms = 4};

constexpr NvlinkDispatchSpec spec_of(i64 row_bytes, i32 num_ranks = 2) {
  return with_decode_threads({.row_bytes = row_bytes, .num_ranks = num_ranks, .num_experts = 256, .top_k = 8}, kGpu);
}

TEST(NvlinkDecodePlan, APartFitsABlockAndTheWireKnowsItsNumber) {
  for (const i64 row_bytes : {16, 4096, 8192, 8208, 14336, 28672, 57344, 65536}) {
    ASSERT_TRUE(nvlink_decode_holds_rows(row_bytes, kGpu));
    for (const i64 tokens : {0, 1, 7, 128, 256}) {
      const NvlinkDecodePlan plan = plan_nvlink_decode(spec_of(row_bytes), tokens, false, 264, 132, kGpu);
      EXPECT_TRUE((WireFormat{.parts = static_cast<u8>(plan.parts)}.valid())) << row_bytes << " B, T = " << tokens;
      EXPECT_LE(wire_part_bytes(row_bytes, plan.parts), kGpuDecodeTuning.part_bytes)
          << row_bytes << " B, T = " << tokens;
    }
  }
  EXPECT_FALSE(nvlink_decode_holds_rows(65552, kGpu));
}

TEST(NvlinkDecodePlan, ABlockHoldsWhatItQuantisesInWholeBlocksOfScales) {
  for (const QuantFormat format : {QuantFormat::fp8, QuantFormat::nvfp4}) {
    for (const i64 hidden : {128, 2048, 2880, 7168, 16384}) {
      NvlinkDispatchSpec spec = spec_of(quant_bytes(format, hidden));
      spec.quantize = format;
      ASSERT_TRUE(nvlink_decode_holds_rows(spec.row_bytes, kGpu, spec.token_bytes_per_byte()));
      for (const i64 tokens : {1, 8, 128}) {
        const i32 parts = plan_nvlink_decode(spec, tokens, false, 264, 132, kGpu).parts;
        const i64 part_bytes = wire_part_bytes(spec.row_bytes, parts);
        EXPECT_LE(part_bytes * spec.token_bytes_per_byte(), kGpuDecodeTuning.part_bytes) << hidden;
        EXPECT_EQ(part_bytes % quant_bytes(format, block_elements(format)), 0) << hidden;
      }
    }
  }
  EXPECT_FALSE(nvlink_decode_holds_rows(131072, kGpu, token_bytes_per_byte(QuantFormat::fp8)));
}

// Where ranks share a GPU, the kernel with the fewest blocks an SM decides for all of an Exchange.
TEST(NvlinkDecodePlan, QuantisingLeavesAsMuchRoomForOtherRanksAsMoving) {
  const auto blocks = [](NvlinkDispatchSpec spec) { return with_decode_threads(spec, kGpu).blocks_per_sm; };
  const NvlinkDispatchSpec plain = spec_of(14336);
  ASSERT_EQ(4, blocks(plain));
  for (const QuantFormat format : {QuantFormat::fp8, QuantFormat::mxfp8, QuantFormat::mxfp4, QuantFormat::nvfp4}) {
    NvlinkDispatchSpec spec = spec_of(quant_bytes(format, 7168));
    spec.scale_bytes = static_cast<i32>(quant_scale_bytes(format, 7168));
    EXPECT_EQ(3, blocks(spec)) << "rows that are not short, and scales beside them, are held at once";
    spec.quantize = format;
    spec.input = Element::bfloat16;
    EXPECT_EQ(4, blocks(spec));
    spec.num_ranks = 3;
    EXPECT_EQ(2, blocks(spec)) << "divisions take registers";
  }
}

TEST(NvlinkDecodePlan, BlocksStayWithinWhatCanWaitTogether) {
  for (const i32 most : {1, 2, 64, 132, 264}) {
    for (const i64 tokens : {0, 1, 128, 256}) {
      const NvlinkDecodePlan plan = plan_nvlink_decode(spec_of(14336, 8), tokens, false, most, 132, kGpu);
      EXPECT_GE(plan.grid, 1);
      EXPECT_LE(plan.grid, most);
    }
  }
}

TEST(NvlinkDecodePlan, ARankWithoutTokensStillHasBlocksForWhatOthersSend) {
  EXPECT_EQ(kGpuDecodeTuning.least_blocks, plan_nvlink_decode(spec_of(14336), 0, false, 264, 132, kGpu).grid);
  EXPECT_EQ(4, plan_nvlink_decode(spec_of(14336), 0, false, 4, 4, kHost).grid);
}

TEST(NvlinkDecodePlan, WhatComesHasBlocksBesideThoseThatSend) {
  for (const i64 tokens : {1, 8, 16, 32, 64}) {
    const NvlinkDecodePlan plan = plan_nvlink_decode(spec_of(14336), tokens, false, 264, 132, kGpu);
    EXPECT_GT(plan.grid, 2 * tokens * plan.parts) << tokens << " tokens";
  }
}

TEST(NvlinkDecodePlan, ScratchOfReusedRoutingDoesNotGrowWithTokens) {
  const auto bytes = [](i64 tokens) {
    return plan_nvlink_decode(spec_of(14336), tokens, true, 264, 132, kGpu).scratch_bytes;
  };
  EXPECT_EQ(bytes(0), bytes(256));
  EXPECT_LT(bytes(256), plan_nvlink_decode(spec_of(14336), 256, false, 264, 132, kGpu).scratch_bytes);
}

TEST(NvlinkDecodePlan, FlagsAreLateWhereMuchTravelsByLinkAndNeverForRemotes) {
  const auto late = [](NvlinkDispatchSpec spec, i64 tokens) {
    return plan_nvlink_decode(spec, tokens, false, 264, 132, kGpu).late_flags != 0;
  };
  EXPECT_FALSE(late(spec_of(14336), 1));
  EXPECT_FALSE(late(spec_of(14336), 64));
  EXPECT_TRUE(late(spec_of(14336), 128));
  NvlinkDispatchSpec with_remotes = spec_of(14336);
  with_remotes.has_remotes = true;
  EXPECT_FALSE(late(with_remotes, 128));
}

TEST(RelayBlocks, OneWhereAGpuHasRemotesAndABlockToSpare) {
  EXPECT_EQ(1, relay_blocks(/*has_remotes=*/true, /*is_host=*/false, 2));
  EXPECT_EQ(0, relay_blocks(true, false, 1));
  EXPECT_EQ(0, relay_blocks(true, true, 64));
  EXPECT_EQ(0, relay_blocks(false, false, 64));
}

TEST(NvlinkCombinePlan, EverySumHasATeamOfItsOwnWhileThereAreEnough) {
  const NvlinkCombineSpec spec =
      with_threads({.hidden = 7168, .num_ranks = 2, .tp_size = 1, .top_k = 8, .threads = 0}, kGpu, true);
  const i64 teams = i64{132} * combine_teams(spec, kGpu);
  for (const i64 tokens : {1, 8, 32, 64, 128}) {
    const NvlinkCombinePlan plan = plan_nvlink_combine(spec, tokens, 132, kGpu);
    EXPECT_LE(tokens * (plan.send_blocks + plan.sum_blocks), teams) << tokens;
    EXPECT_EQ(tokens * plan.send_blocks, plan.first_sum_block) << tokens;
    EXPECT_GE(plan.send_rows, tokens) << "what was planned for must not be cut less";
    EXPECT_LE(plan.send_rows * plan.send_blocks, teams - tokens) << tokens;
  }
  EXPECT_EQ(1, plan_nvlink_combine(spec, 4096, 132, kGpu).send_blocks);
  EXPECT_EQ(partial_parts(7168), plan_nvlink_combine(spec, 1, 132, kGpu).send_blocks);
}

constexpr LocalDevice kHopper{.num_sms = 132, .max_scratch_bytes = 227 << 10};

TEST(NvlinkCombinePlan, WarpsWithManyTokensHaveWholePartsAndRoomForThem) {
  for (const i64 hidden : {8, 64, 1024, 2048, 2880, 5120, 7168, 8192}) {
    for (const Element input : {Element::bfloat16, Element::float32}) {
      const NvlinkCombineSpec spec = with_many_threads(
          {.hidden = hidden, .num_ranks = 4, .top_k = 8, .input = input, .partial = input, .output = input}, kHopper);
      ASSERT_TRUE(may_combine_many(spec, kHopper)) << hidden;
      const CombineManyScratch scratch(spec);
      EXPECT_GE(scratch.stages, 1);
      EXPECT_LE(scratch.total, kHopper.max_scratch_bytes);
      for (const i64 tokens : {1, 33, 128, 1024, 8192}) {
        const NvlinkCombinePlan plan = plan_nvlink_combine_many(spec, tokens, 132);
        EXPECT_EQ(0, partial_parts(hidden) % plan.send_blocks);
        EXPECT_GE(plan.send_blocks, scratch.least_pieces);
        EXPECT_EQ(plan.send_blocks, plan.sum_blocks);
        EXPECT_EQ(0, plan.send_rows) << "warps cut rows by send_blocks alone";
        EXPECT_GE(plan.lag_tokens, 0);
      }
    }
  }
}

TEST(NvlinkCombinePlan, RowsWhosePiecesNoWarpHoldsAreLeftToTeams) {
  EXPECT_FALSE(may_combine_many({.hidden = 16384, .num_ranks = 2, .top_k = 8}, kHopper));
  EXPECT_FALSE(may_combine_many({.hidden = 7168, .num_ranks = 64, .top_k = 8}, kHopper)) << "a lane knows a rank";
  EXPECT_FALSE(may_combine_many({.hidden = 7168, .num_ranks = 4, .tp_size = 2, .top_k = 8}, kHopper));
  EXPECT_FALSE(may_combine_many({.hidden = 7168, .num_ranks = 4, .top_k = 8, .has_remotes = true}, kHopper));
}

TEST(NvlinkCombinePlan, WarpsTakeCallsOfManyTokens) {
  const NvlinkCombineSpec long_rows{.hidden = 7168, .num_ranks = 2, .top_k = 8};
  const NvlinkCombineSpec short_rows{.hidden = 2048, .num_ranks = 2, .top_k = 8};
  EXPECT_FALSE(takes_combine_many(long_rows, 64));
  EXPECT_TRUE(takes_combine_many(long_rows, 128));
  EXPECT_FALSE(takes_combine_many(short_rows, 128));
  EXPECT_TRUE(takes_combine_many(short_rows, 256));
}

}  // namespace
}  // namespace moelink

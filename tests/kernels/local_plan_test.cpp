// protocol/local_plan.hpp: pure functions, so that what a GPU would be asked to do is tested without one.
#include "moelink/protocol/local_plan.hpp"

#include <gtest/gtest.h>

namespace moelink {
namespace {

constexpr LocalDevice kH200{.is_host = false, .num_sms = 132, .max_scratch_bytes = 227 << 10};
constexpr LocalDevice kTwoThreads{.is_host = true, .num_sms = 2, .max_scratch_bytes = 0};
constexpr LocalDispatchSpec kDeepSeek{.row_bytes = 14336, .scale_bytes = 0, .num_experts = 256, .top_k = 8};

TEST(LocalPlan, FewTokensShareTheirRowsManyDoNot) {
  const LocalDispatchPlan one = plan_dispatch(kDeepSeek, 1, false, kH200);
  EXPECT_EQ(DispatchVariant::decode, one.variant);
  EXPECT_EQ(4, one.parts);  // 896 units of 16 bytes for 256 threads each
  EXPECT_EQ(1 * 4 + 1, one.grid) << "four parts, and a block for what is known about experts";
  EXPECT_EQ(2, plan_dispatch(kDeepSeek, 128, false, kH200).parts);
  EXPECT_EQ(1, plan_dispatch(kDeepSeek, 256, false, kH200).parts);
}

// Half of the threads route: rows are shared as if the others were all.
TEST(LocalPlan, DecodeThatQuantisesHasAHalfThatRoutes) {
  LocalDispatchSpec spec = kDeepSeek;
  spec.row_bytes = quant_bytes(QuantFormat::fp8, 7168);
  spec.scale_bytes = static_cast<i32>(quant_scale_bytes(QuantFormat::fp8, 7168));
  spec.quantize = QuantFormat::fp8;
  spec.input = Element::bfloat16;
  const auto threads = [&](DispatchVariant variant, const LocalDevice& device) {
    return with_threads(spec, variant, device).threads;
  };
  EXPECT_EQ(512, threads(DispatchVariant::decode, kH200));
  EXPECT_EQ(kGpuTuning.prefill_threads, threads(DispatchVariant::prefill, kH200));
  EXPECT_EQ(kGpuTuning.prefill_threads, threads(DispatchVariant::move, kH200));
  EXPECT_EQ(1, threads(DispatchVariant::decode, kTwoThreads));
  EXPECT_EQ(256, with_threads(kDeepSeek, DispatchVariant::decode, kH200).threads) << "what only moves needs no half";
  for (const i64 tokens : {1L, 8L, 128L}) {
    EXPECT_EQ(plan_dispatch(kDeepSeek, tokens, false, kH200).parts, plan_dispatch(spec, tokens, false, kH200).parts);
  }
}

TEST(LocalPlan, VariantFollowsTheNumberOfEntries) {
  const i64 decode = max_decode_tokens(kDeepSeek, kH200);
  EXPECT_EQ(kGpuTuning.decode_max_entries / 8, decode);
  EXPECT_EQ(DispatchVariant::decode, plan_dispatch(kDeepSeek, decode, false, kH200).variant);
  const LocalDispatchPlan next = plan_dispatch(kDeepSeek, decode + 1, false, kH200);
  EXPECT_EQ(DispatchVariant::prefill, next.variant);
  EXPECT_EQ(1, next.every_block_counts);
  const i64 counting = kGpuTuning.every_block_counts_max_entries / 8;
  EXPECT_EQ(1, plan_dispatch(kDeepSeek, counting, false, kH200).every_block_counts);
  EXPECT_EQ(0, plan_dispatch(kDeepSeek, counting + 1, false, kH200).every_block_counts);
}

TEST(LocalPlan, ManyExpertsAreNeverSummedByEveryBlock) {
  LocalDispatchSpec spec = kDeepSeek;
  spec.num_experts = kMaxExperts;
  EXPECT_EQ(-1, max_decode_tokens(spec, kH200));
  for (const i64 tokens : {0L, 1L, 4096L}) {
    const LocalDispatchPlan plan = plan_dispatch(spec, tokens, false, kH200);
    EXPECT_EQ(DispatchVariant::prefill, plan.variant);
    EXPECT_EQ(0, plan.every_block_counts);
  }
}

// A grid barrier needs a resident grid; a ring needs more stages than it drains; a block must fit an SM.
TEST(LocalPlan, PrefillFitsTheDeviceForEveryShape) {
  for (const i32 experts : {1, 256, 1024, 1025, kMaxExperts}) {
    for (const i64 row_bytes : {16L, 4096L, 14336L, 16400L, 1L << 20}) {
      for (const i32 scale_bytes : {0, 4, 224, 2048, 4096}) {
        for (const i64 tokens : {0L, 1L, 131L, 2048L, 1L << 20}) {
          const LocalDispatchSpec spec{
              .row_bytes = row_bytes, .scale_bytes = scale_bytes, .num_experts = experts, .top_k = 8};
          for (const bool reuse : {false, true}) {
            const LocalDispatchPlan plan = plan_dispatch(spec, tokens, reuse, kH200);
            EXPECT_GE(plan.grid, 1);
            EXPECT_LE(plan.scratch_bytes, kH200.max_scratch_bytes);
            if (plan.ring_bytes == 0) continue;
            EXPECT_LE(plan.grid, kH200.num_sms);
            EXPECT_GE(plan.ring_bytes, RingShape::kLeastRingBytes);
            const RingShape ring(row_bytes, scale_bytes, plan.ring_bytes);
            EXPECT_GE(ring.stages, RingShape::kLeastStages);
            EXPECT_LE(ring.stages, RingShape::kMostStages);
            EXPECT_LE(ring.stages * ring.stage_bytes, plan.ring_bytes);
            EXPECT_EQ(0, ring.chunk_bytes % 16);
            EXPECT_GE(static_cast<i64>(ring.chunk_bytes) * ring.chunks_per_row, row_bytes);
            EXPECT_LT(static_cast<i64>(ring.chunk_bytes) * (ring.chunks_per_row - 1), row_bytes);
          }
        }
      }
    }
  }
}

TEST(LocalPlan, NoCallOccupiesMoreThanItMay) {
  for (const i64 tokens : {1L, 64L, 4096L}) {
    EXPECT_LE(plan_dispatch(kDeepSeek, tokens, false, kH200, 20).grid, 20);
    EXPECT_LE(plan_dispatch(kDeepSeek, tokens, true, kH200, 20).grid, 20);
    const LocalCombineSpec combine{.hidden = 7168, .top_k = 8};
    EXPECT_LE(plan_combine(combine, tokens, kH200, 20).grid, 20);
    EXPECT_LE(plan_dispatch(kDeepSeek, tokens, false, kTwoThreads, 1).grid, 1);
  }
}

TEST(LocalPlan, HostBlocksAreThreads) {
  for (const i64 tokens : {0L, 1L, 3L, 4096L}) {
    EXPECT_LE(plan_dispatch(kDeepSeek, tokens, false, kTwoThreads).grid, 2);
    EXPECT_LE(plan_combine({.hidden = 7168, .top_k = 8}, tokens, kTwoThreads).grid, 2);
  }
}

TEST(LocalPlan, CombineSharesRowsUntilTheDeviceIsBusy) {
  const LocalCombineSpec combine{.hidden = 7168, .top_k = 8};
  EXPECT_EQ(8, plan_combine(combine, 1, kH200).parts);
  EXPECT_EQ(8, plan_combine(combine, 32, kH200).parts);
  EXPECT_EQ(4, plan_combine(combine, 128, kH200).parts);
  EXPECT_EQ(1, plan_combine(combine, 512, kH200).parts);
  EXPECT_EQ(512, plan_combine(combine, 512, kH200).grid);
}

TEST(LocalPlan, ShortTokensAreDecodeForLonger) {
  const LocalDispatchSpec short_tokens{.row_bytes = 4096, .num_experts = 128, .top_k = 8};
  EXPECT_EQ(max_decode_tokens(short_tokens, kH200), 512);
  LocalDispatchSpec longer = short_tokens;
  longer.row_bytes = 4112;
  EXPECT_EQ(max_decode_tokens(longer, kH200), 256);
  LocalDispatchSpec one_of_many = short_tokens;
  one_of_many.top_k = 1;
  EXPECT_EQ(max_decode_tokens(one_of_many, kH200), 2048) << "a block a token: no more of them than before";
  LocalDispatchSpec many_experts = short_tokens;
  many_experts.num_experts = 257;
  EXPECT_EQ(max_decode_tokens(many_experts, kH200), 256);
  LocalDispatchSpec part = short_tokens;
  part.is_part = true;
  EXPECT_EQ(max_decode_tokens(part, kH200), 256) << "one block hashes all entries";
  LocalDispatchSpec quantized = short_tokens;
  quantized.quantize = QuantFormat::fp8;
  EXPECT_EQ(max_decode_tokens(quantized, kH200), 256) << "what is read counts, not what is stored";
}

TEST(LocalPlan, DecodeScratchHoldsWhatItSays) {
  const DecodeScratch scratch(63);
  EXPECT_EQ(0, scratch.below);
  EXPECT_GE(scratch.others, 65 * 4) << "ids out of range and skipped ones have counters as well";
  EXPECT_EQ(0, scratch.others % 16) << "counts are read by fours";
  EXPECT_GE(scratch.codes, scratch.others + 65 * 4);
  EXPECT_EQ(0, scratch.codes % 16) << "codes are read by eights";
  EXPECT_GE(scratch.rows, scratch.codes + kMaxTopK * 2);
  EXPECT_EQ(scratch.total, scratch.weights + kMaxTopK * 4);
}

}  // namespace
}  // namespace moelink

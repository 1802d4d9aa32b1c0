#include "moelink/protocol/nvlink_prefill_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "specs.hpp"

namespace moelink::test {
namespace {

constexpr LocalDevice kH200{.is_host = false, .num_sms = 132, .max_scratch_bytes = 227 << 10};
constexpr LocalDevice kSmall{.is_host = false, .num_sms = 188, .max_scratch_bytes = 99 << 10};
constexpr LocalDevice kTwoThreads{.is_host = true, .num_sms = 2};
constexpr NvlinkDispatchSpec kDeepSeekOfTwo{.row_bytes = 14336, .num_ranks = 2, .num_experts = 256, .top_k = 8};

TEST(NvlinkPrefillPlan, ManyTokensOrExpertsArePrefill) {
  EXPECT_FALSE(takes_nvlink_prefill(kDeepSeekOfTwo, 0, kH200));
  EXPECT_FALSE(takes_nvlink_prefill(kDeepSeekOfTwo, 256, kH200));
  EXPECT_TRUE(takes_nvlink_prefill(kDeepSeekOfTwo, 257, kH200));
  NvlinkDispatchSpec many_experts = kDeepSeekOfTwo;
  many_experts.num_experts = 2048;
  EXPECT_TRUE(takes_nvlink_prefill(many_experts, 1, kH200));
  EXPECT_TRUE(takes_nvlink_prefill(many_experts, 0, kH200));
}

TEST(NvlinkPrefillPlan, ShortRowsArePrefillFromMoreTokensOn) {
  NvlinkDispatchSpec qwen = kDeepSeekOfTwo;
  qwen.row_bytes = 4096;
  EXPECT_FALSE(takes_nvlink_prefill(qwen, 512, kH200));
  EXPECT_TRUE(takes_nvlink_prefill(qwen, 513, kH200));
  qwen.row_bytes += 16;
  EXPECT_TRUE(takes_nvlink_prefill(qwen, 512, kH200));
  qwen.row_bytes = 4096;
  qwen.num_ranks = 8;
  EXPECT_TRUE(takes_nvlink_prefill(qwen, 257, kH200)) << "a token goes to more ranks";
  NvlinkDispatchSpec one_expert = kDeepSeekOfTwo;
  one_expert.row_bytes = 4096;
  one_expert.top_k = 1;
  EXPECT_FALSE(takes_nvlink_prefill(one_expert, 2048, kH200)) << "never fewer than of long rows";
  EXPECT_TRUE(takes_nvlink_prefill(one_expert, 2049, kH200));
  one_expert.top_k = 22;
  EXPECT_FALSE(takes_nvlink_prefill(one_expert, 4096 / 22, kH200));
  EXPECT_TRUE(takes_nvlink_prefill(one_expert, 4096 / 22 + 1, kH200));
  EXPECT_EQ(64, most_tokens_below_prefill(qwen, kTwoThreads)) << "on the host as they were";
}

TEST(NvlinkPrefillPlan, SomeBlocksSendAndAllReceive) {
  const NvlinkPrefillPlan plan = plan_nvlink_prefill(kDeepSeekOfTwo, true, 132, kH200);
  EXPECT_EQ(132, plan.grid);
  EXPECT_EQ(132 * kGpuPrefillTuning.senders_of_16 / 16, plan.num_senders);
  EXPECT_LT(0, plan.num_senders);
  EXPECT_LT(plan.num_senders, plan.grid);
}

TEST(NvlinkPrefillPlan, MoreBlocksSendWhereTheLinkDoesNotBoundThem) {
  NvlinkDispatchSpec quantizing = kDeepSeekOfTwo;
  quantizing.row_bytes = 7168;
  quantizing.scale_bytes = 224;
  quantizing.quantize = QuantFormat::fp8;
  quantizing.input = Element::bfloat16;
  const i32 many = 132 * kGpuPrefillTuning.many_senders_of_16 / 16;
  EXPECT_EQ(many, plan_nvlink_prefill(quantizing, true, 132, kH200).num_senders);
  EXPECT_EQ(many, plan_nvlink_prefill(kDeepSeekOfTwo, true, 132, kH200, true).num_senders);
  EXPECT_LT(many, 132) << "somebody receives from the start";
}

NvlinkDispatchSpec quantizing_spec(QuantFormat format, i64 hidden) {
  return {.row_bytes = quant_bytes(format, hidden),
          .scale_bytes = static_cast<i32>(quant_scale_bytes(format, hidden)),
          .num_ranks = 2,
          .num_experts = 256,
          .top_k = 8,
          .quantize = format,
          .input = Element::bfloat16};
}

TEST(NvlinkPrefillPlan, QuantisesWhatAStageHoldsAndBulkCopiesCarry) {
  const auto quantizes = [](QuantFormat format, i64 hidden, const LocalDevice& device) {
    return nvlink_prefill_quantizes(quantizing_spec(format, hidden), device);
  };
  EXPECT_TRUE(quantizes(QuantFormat::fp8, 7168, kH200));
  EXPECT_TRUE(quantizes(QuantFormat::nvfp4, 8192, kH200));
  EXPECT_FALSE(quantizes(QuantFormat::fp8, 16384, kH200)) << "a token takes two stages";
  EXPECT_FALSE(quantizes(QuantFormat::fp8, 2880, kH200)) << "92 bytes of scales";
  EXPECT_TRUE(quantizes(QuantFormat::fp8, 2880, kTwoThreads));
  EXPECT_FALSE(nvlink_prefill_quantizes(kDeepSeekOfTwo, kH200));
}

TEST(NvlinkPrefillPlan, NoTokenIsReadPastTheEndOfAStageWhateverTheScratch) {
  EXPECT_FALSE(nvlink_prefill_quantizes(quantizing_spec(QuantFormat::fp8, 7168), kSmall));
  EXPECT_TRUE(nvlink_prefill_quantizes(quantizing_spec(QuantFormat::fp8, 4096), kSmall));
  for (const QuantFormat format : {QuantFormat::fp8, QuantFormat::mxfp8, QuantFormat::mxfp4, QuantFormat::nvfp4}) {
    for (i64 hidden = 512; hidden <= 16384; hidden += 512) {
      const NvlinkDispatchSpec spec = quantizing_spec(format, hidden);
      for (i32 scratch_bytes = 0; scratch_bytes <= 256 << 10; scratch_bytes += 4 << 10) {
        const LocalDevice device{.is_host = false, .num_sms = 132, .max_scratch_bytes = scratch_bytes};
        if (!nvlink_prefill_quantizes(spec, device)) continue;
        const i32 ring_bytes = plan_nvlink_prefill(spec, true, 132, device).ring_bytes;
        const RingShape ring(2 * hidden, spec.scale_bytes, ring_bytes);  // as the kernel makes it
        ASSERT_GE(ring.stages, RingShape::kLeastStages) << hidden << " elements, " << scratch_bytes << " B";
        ASSERT_LE(ring.stages * ring.stage_bytes, ring_bytes) << hidden << " elements, " << scratch_bytes << " B";
        ASSERT_LE(2 * hidden + spec.scale_bytes, ring.stage_bytes) << hidden << " elements, " << scratch_bytes << " B";
      }
    }
  }
}

TEST(NvlinkPrefillPlan, ALaunchThatOnlySendsLeavesTheOtherSmsAlone) {
  const NvlinkPrefillPlan plan = plan_nvlink_prefill(kDeepSeekOfTwo, false, 132, kH200);
  EXPECT_EQ(kGpuPrefillTuning.most_senders, plan.grid);
  EXPECT_EQ(plan.grid, plan.num_senders);
}

TEST(NvlinkPrefillPlan, StaysWithinTheBlocksThatMayWait) {
  for (const i32 max_blocks : {0, 1, 2, 3, 16, 66, 500}) {
    for (const bool receives : {true, false}) {
      const NvlinkPrefillPlan plan = plan_nvlink_prefill(kDeepSeekOfTwo, receives, max_blocks, kH200);
      EXPECT_LE(1, plan.num_senders);
      EXPECT_LE(plan.num_senders, plan.grid);
      EXPECT_LE(plan.grid, std::max(1, std::min(max_blocks, kH200.num_sms)));
    }
  }
  EXPECT_EQ(2, plan_nvlink_prefill(kDeepSeekOfTwo, true, 8, kTwoThreads).num_senders);
}

TEST(NvlinkPrefillPlan, EveryShapeFitsTheScratchOfABlockWithARing) {
  for (const NvlinkDispatchSpec& spec : nvlink_dispatch_specs()) {
    for (const bool receives : {true, false}) {
      const NvlinkPrefillPlan plan = plan_nvlink_prefill(spec, receives, 132, kH200);
      EXPECT_LE(plan.scratch_bytes, kH200.max_scratch_bytes) << spec.num_experts << " experts";
      EXPECT_GE(plan.ring_bytes, RingShape::kLeastRingBytes) << spec.num_experts << " experts";
      EXPECT_LE(1 << plan.log2_slots_per_flag, PumpScratch::kBatchRows);
    }
  }
  EXPECT_EQ(0, plan_nvlink_prefill(kDeepSeekOfTwo, true, 2, kTwoThreads).ring_bytes);
}

TEST(NvlinkPrefillPlan, ThePlanIsWhatTheKernelIsTold) {
  NvlinkDispatchArgs args{};
  args.format = {.parts = 4, .payload = 3, .reuse_routing = 1};
  apply({.grid = 9, .num_senders = 5, .log2_slots_per_flag = 3, .ring_bytes = 4096, .scratch_bytes = 1}, args);
  EXPECT_EQ(5, args.num_senders);
  EXPECT_EQ(4096, args.local.ring_bytes);
  const WireFormat expected{.log2_slots_per_flag = 3, .parts = 1, .payload = 3, .reuse_routing = 1};
  EXPECT_EQ(expected.packed(), args.format.packed());
}

}  // namespace
}  // namespace moelink::test

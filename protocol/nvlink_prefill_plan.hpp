// How NvlinkPrefill is launched: block size, grid, how many blocks send, how many slots share a flag. Pure functions of
// shape and device. A rank chooses for itself: what a peer must know travels in the header (WireFormat), and members of
// a group pass the same tokens, so that they choose alike.
#pragma once

#include "moelink/protocol/local_plan.hpp"
#include "moelink/protocol/nvlink_prefill_scratch.hpp"

namespace moelink {

/// Measured choices.
struct NvlinkPrefillTuning {
  // Many are: more experts; or more tokens * top_k. Of rows of at most short_row_bytes also up to few_short_entries are
  // few, if their tokens, each with itself and with the other ranks that it may go to, are at most few_short_rows.
  i32 few_experts;
  i32 few_entries;
  i32 short_row_bytes;
  i32 few_short_entries;
  i32 few_short_rows;
  i32 threads;  ///< block size
  i32 log2_slots_per_flag;
  i32 senders_of_16;       ///< of 16 blocks of a launch that also receives, those that send first
  i32 many_senders_of_16;  ///< likewise, where the link does not bound them
  i32 most_senders;        ///< of a launch that only sends: its grid
  i32 ring_bytes;          ///< block scratch for rows under way
};

// On two GPUs. Senders also place their tokens' own rows, and one warp of each issues all copies; with more of them the
// flags of each are further apart. 9 instead of 6 of 16 take 91 instead of 107 us for 4096 tokens of Qwen3-30B-A3B, 50
// instead of 52 for 512 of DeepSeek-V3, and as long for 4096 of it. Where they also quantise, or store to the memory
// that they read from, the senders are what takes longest: 12 instead of 6 took fp8 from 184 to 171 us, and on a shared
// GPU from 299 to 252, bf16 there from 433 to 394.
// Short rows: 512 tokens of Qwen3-30B-A3B take decode 22 us and prefill 31, 1024 take decode 61: a block of it has its
// rows one after the other.
inline constexpr NvlinkPrefillTuning kGpuPrefillTuning{.few_experts = 1024,
                                                       .few_entries = 2048,
                                                       .short_row_bytes = 4096,
                                                       .few_short_entries = 4096,
                                                       .few_short_rows = 1024,
                                                       .threads = 512,
                                                       .log2_slots_per_flag = 2,
                                                       .senders_of_16 = 9,
                                                       .many_senders_of_16 = 12,
                                                       .most_senders = 32,
                                                       .ring_bytes = 200 << 10};
// Threads of a host that all send before they receive are as good as some that do each.
inline constexpr NvlinkPrefillTuning kHostPrefillTuning{.few_experts = kMaxExperts,
                                                        .few_entries = 512,
                                                        .short_row_bytes = 0,
                                                        .few_short_entries = 0,
                                                        .few_short_rows = 0,
                                                        .threads = 1,
                                                        .log2_slots_per_flag = PumpScratch::kLog2BatchRows,
                                                        .senders_of_16 = 16,
                                                        .many_senders_of_16 = 16,
                                                        .most_senders = 1 << 20,
                                                        .ring_bytes = 0};

constexpr const NvlinkPrefillTuning& nvlink_prefill_tuning_for(const LocalDevice& device) {
  return device.is_host ? kHostPrefillTuning : kGpuPrefillTuning;
}

constexpr NvlinkDispatchSpec with_prefill_threads(NvlinkDispatchSpec spec, const LocalDevice& device) {
  spec.threads = nvlink_prefill_tuning_for(device).threads;
  spec.blocks_per_sm = 1;  // the ring fills an SM
  return spec;
}

/// Of a launch on a GPU whose blocks may have `max_scratch_bytes`.
constexpr i32 nvlink_prefill_ring_bytes(const NvlinkDispatchSpec& spec, i32 max_scratch_bytes,
                                        const NvlinkPrefillTuning& tuning) {
  return min_of(tuning.ring_bytes, max_scratch_bytes - NvlinkPrefillScratch(spec, 0).pump.total) / 128 * 128;
}

/// Whether prefill itself can quantise for a spec that wants it: a stage of its ring holds a token as it is read, and
/// bulk copies carry its scales. The ring is the one that plan_nvlink_prefill() gives a launch on this device: with a
/// smaller one, tokens would be read past the end of their stage. Ranks need not agree: what travels is the same.
constexpr bool nvlink_prefill_quantizes(const NvlinkDispatchSpec& spec, const LocalDevice& device) {
  if (spec.quantize == QuantFormat::none || device.is_host) return spec.quantize != QuantFormat::none;
  const i32 ring_bytes = nvlink_prefill_ring_bytes(spec, device.max_scratch_bytes, nvlink_prefill_tuning_for(device));
  if (ring_bytes < RingShape::kLeastRingBytes) return false;
  const RingShape ring(spec.row_bytes * spec.token_bytes_per_byte(), spec.scale_bytes, ring_bytes);
  return ring.chunks_per_row == 1 && RingShape::bulk_scale_bytes(spec.scale_bytes) != 0;
}

/// The most tokens of a dispatch that is not NvlinkPrefill's; -1: there is none. Both halves of a call are one kernel's.
constexpr i64 most_tokens_below_prefill(const NvlinkDispatchSpec& spec, const LocalDevice& device) {
  const NvlinkPrefillTuning& tuning = nvlink_prefill_tuning_for(device);
  if (spec.num_experts > tuning.few_experts) return -1;
  const i32 few = tuning.few_entries / spec.top_k;
  if (spec.row_bytes > tuning.short_row_bytes) return few;
  const i32 others = min_of(spec.num_ranks / spec.tp_size - 1, spec.top_k);
  return max_of(few, min_of(tuning.few_short_entries / spec.top_k, tuning.few_short_rows / (1 + others)));
}
constexpr bool takes_nvlink_prefill(const NvlinkDispatchSpec& spec, i64 num_tokens, const LocalDevice& device) {
  return num_tokens > most_tokens_below_prefill(spec, device);
}

struct NvlinkPrefillPlan {
  i32 grid = 1;
  i32 num_senders = 1;          ///< NvlinkDispatchArgs::num_senders
  i32 log2_slots_per_flag = 0;  ///< WireFormat::log2_slots_per_flag
  i32 ring_bytes = 0;           ///< LocalDispatchArgs::ring_bytes
  i32 scratch_bytes = 0;        ///< of one block
  friend constexpr bool operator==(const NvlinkPrefillPlan&, const NvlinkPrefillPlan&) = default;
};

/// What a plan says to the kernel.
constexpr void apply(const NvlinkPrefillPlan& plan, NvlinkDispatchArgs& args) {
  args.num_senders = plan.num_senders;
  args.format.log2_slots_per_flag = static_cast<u8>(plan.log2_slots_per_flag);
  args.format.parts = 1;
  args.local.ring_bytes = plan.ring_bytes;
}

/// A launch on at most `max_blocks` blocks, one per SM (host: thread), all resident. `receives`: whether it also
/// receives; then it takes them all, whatever the own tokens: what others send is not known here. `is_shared`: ranks
/// share the device.
constexpr NvlinkPrefillPlan plan_nvlink_prefill(const NvlinkDispatchSpec& spec, bool receives, i32 max_blocks,
                                                const LocalDevice& device, bool is_shared,
                                                const NvlinkPrefillTuning& tuning) {
  NvlinkPrefillPlan plan;
  plan.grid = max_of(min_of(max_blocks, device.num_sms), 1);
  if (!receives) plan.grid = min_of(plan.grid, tuning.most_senders);
  const bool is_bound_by_link = !is_shared && spec.quantize == QuantFormat::none;
  const i32 senders_of_16 = is_bound_by_link ? tuning.senders_of_16 : tuning.many_senders_of_16;
  plan.num_senders = receives ? max_of(plan.grid * senders_of_16 / 16, 1) : plan.grid;
  plan.log2_slots_per_flag = min_of(tuning.log2_slots_per_flag, PumpScratch::kLog2BatchRows);
  if (!device.is_host) plan.ring_bytes = nvlink_prefill_ring_bytes(spec, device.max_scratch_bytes, tuning);
  plan.scratch_bytes = NvlinkPrefillScratch(spec, plan.ring_bytes).total;
  return plan;
}
constexpr NvlinkPrefillPlan plan_nvlink_prefill(const NvlinkDispatchSpec& spec, bool receives, i32 max_blocks,
                                                const LocalDevice& device, bool is_shared = false) {
  return plan_nvlink_prefill(spec, receives, max_blocks, device, is_shared, nvlink_prefill_tuning_for(device));
}

/// Words of LocalDispatchArgs::block_counts that any plan on this device may use.
constexpr i64 nvlink_prefill_workspace_words(const NvlinkDispatchSpec& spec, const LocalDevice& device) {
  return nvlink_prefill_workspace_words(spec, device.num_sms);
}

}  // namespace moelink

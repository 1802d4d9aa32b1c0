// How the local kernels are launched: which variant, how many blocks, how a row is shared. Pure functions of shape,
// token count and device. The numbers they compare with are data, with the measurements that set them in
// docs/decisions/0003-decode-routing.md.
#pragma once

#include "moelink/protocol/local_moe.hpp"
#include "moelink/protocol/local_scratch.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// What plans need to know of a device.
struct LocalDevice {
  bool is_host = false;
  i32 num_sms = 0;            ///< host: threads of the stream
  i32 max_scratch_bytes = 0;  ///< most that one block may ask for
};

/// Measured choices.
struct LocalTuning {
  // Block sizes.
  i32 decode_threads;
  i32 prefill_threads;
  i32 combine_threads;
  i32 combine_blocks_per_sm;  ///< registers are bounded so that so many fit
  // Decode up to so many tokens * top_k and experts: every block reads all ids and sums all counts.
  i32 decode_max_entries;
  // The same where tokens are so short that a block of prefill has little to copy, and experts so few that four blocks
  // of decode fit an SM (128; with 256 three).
  i32 decode_max_short_entries;
  i32 decode_max_short_tokens;  ///< a block each
  i32 short_token_bytes;
  i32 decode_max_short_experts;
  i32 decode_max_experts;
  // Prefill without grid barriers up to so many tokens * top_k and experts: every block counts all ids.
  i32 every_block_counts_max_entries;
  i32 every_block_counts_max_experts;
  // Rows are shared by blocks while fewer than this times the SMs would be busy.
  i32 dispatch_blocks_per_sm;
  i32 combine_share_blocks_per_sm;
  i32 max_parts;   ///< a power of two
  i32 ring_bytes;  ///< prefill, move: block scratch for rows under way
};

inline constexpr LocalTuning kGpuTuning{.decode_threads = 256,
                                        .prefill_threads = 512,
                                        .combine_threads = 128,
                                        .combine_blocks_per_sm = 4,
                                        .decode_max_entries = 2048,
                                        .decode_max_short_entries = 4096,
                                        .decode_max_short_tokens = 512,
                                        .short_token_bytes = 4096,
                                        .decode_max_short_experts = 256,
                                        .decode_max_experts = 1024,
                                        .every_block_counts_max_entries = 16384,
                                        .every_block_counts_max_experts = 1024,
                                        .dispatch_blocks_per_sm = 2,
                                        .combine_share_blocks_per_sm = 4,
                                        .max_parts = 8,
                                        .ring_bytes = 200 << 10};

// The host has no use for counting twice: a barrier of a few threads is cheap, and caches hold the ids.
inline constexpr LocalTuning kHostTuning{.decode_threads = 1,
                                         .prefill_threads = 1,
                                         .combine_threads = 1,
                                         .combine_blocks_per_sm = 1,
                                         .decode_max_entries = 512,
                                         .decode_max_short_entries = 0,
                                         .decode_max_short_tokens = 0,
                                         .short_token_bytes = 0,
                                         .decode_max_short_experts = 0,
                                         .decode_max_experts = kMaxExperts,
                                         .every_block_counts_max_entries = 0,
                                         .every_block_counts_max_experts = 0,
                                         .dispatch_blocks_per_sm = 1,
                                         .combine_share_blocks_per_sm = 1,
                                         .max_parts = 8,
                                         .ring_bytes = 0};

constexpr const LocalTuning& tuning_for(const LocalDevice& device) { return device.is_host ? kHostTuning : kGpuTuning; }

enum class DispatchVariant : u8 { decode, prefill, move };

constexpr const char* name_of(DispatchVariant variant) {
  return variant == DispatchVariant::decode ? "decode" : variant == DispatchVariant::prefill ? "prefill" : "move";
}

struct LocalDispatchPlan {
  DispatchVariant variant = DispatchVariant::decode;
  i32 grid = 1;
  i32 parts = 0;               ///< LocalDispatchArgs::parts
  i32 ring_bytes = 0;          ///< LocalDispatchArgs::ring_bytes
  i32 every_block_counts = 0;  ///< LocalDispatchArgs::every_block_counts
  i32 scratch_bytes = 0;       ///< of one block
  friend constexpr bool operator==(const LocalDispatchPlan&, const LocalDispatchPlan&) = default;
};

/// What a plan says to the kernel.
constexpr void apply(const LocalDispatchPlan& plan, LocalDispatchArgs& args) {
  args.parts = plan.parts;
  args.ring_bytes = plan.ring_bytes;
  args.every_block_counts = plan.every_block_counts;
}

struct LocalCombinePlan {
  i32 grid = 1;
  i32 parts = 1;  ///< LocalCombineArgs::parts
  friend constexpr bool operator==(const LocalCombinePlan&, const LocalCombinePlan&) = default;
};

inline constexpr i64 kMostBlocks = 0x7fffffff;

/// SMs (threads) that a call may occupy; max_sms 0: all.
constexpr i32 sms_for(const LocalDevice& device, i32 max_sms) {
  return max_sms > 0 ? min_of(max_sms, device.num_sms) : device.num_sms;
}

/// Blocks that share one row of `units` 16-byte units: a power of two, enough to give `wanted_blocks` something to do
/// while each thread of theirs still has a unit.
constexpr i32 parts_of_row(i64 num_tokens, i64 units, i32 threads, i32 wanted_blocks, i32 max_parts) {
  i32 parts = 1;
  while (parts < max_parts && parts * max_of(num_tokens, 1L) * 2 <= wanted_blocks && parts * threads < units)
    parts *= 2;
  return parts;
}

/// The grid for `items` independent pieces of work: on a GPU blocks beyond the resident ones cost nothing, unless the
/// call must leave SMs alone; on the host a block is a thread.
constexpr i32 grid_for(i64 items, const LocalDevice& device, i32 max_sms) {
  const i64 limit = device.is_host || max_sms > 0 ? sms_for(device, max_sms) : kMostBlocks;
  return static_cast<i32>(max_of(min_of(items, limit), 1L));
}

/// The most tokens that dispatch still takes as decode; -1: never, not even none.
constexpr i64 max_decode_tokens(const LocalDispatchSpec& spec, const LocalDevice& device) {
  const LocalTuning& tuning = tuning_for(device);
  if (spec.num_experts > tuning.decode_max_experts) return -1;
  // Not of replicated inputs: one block hashes all entries.
  const bool is_short = spec.token_bytes() <= tuning.short_token_bytes && !spec.is_part &&
                        spec.num_experts <= tuning.decode_max_short_experts;
  const i32 most = tuning.decode_max_entries / spec.top_k;
  if (!is_short) return most;
  return max_of(most, min_of(tuning.decode_max_short_entries / spec.top_k, tuning.decode_max_short_tokens));
}

/// The spec of a variant: block sizes are chosen here.
constexpr LocalDispatchSpec with_threads(LocalDispatchSpec spec, DispatchVariant variant, const LocalDevice& device) {
  const LocalTuning& tuning = tuning_for(device);
  spec.threads = variant == DispatchVariant::decode ? tuning.decode_threads : tuning.prefill_threads;
  // As many threads again route while the others quantise (moe/local_decode.cuh).
  const bool routes_apart = !device.is_host && variant == DispatchVariant::decode;
  if (routes_apart && spec.quantize != QuantFormat::none) spec.threads *= 2;
  return spec;
}
constexpr LocalCombineSpec with_threads(LocalCombineSpec spec, const LocalDevice& device) {
  spec.threads = tuning_for(device).combine_threads;
  // Rows beyond eight keep more indices and weights in registers.
  spec.blocks_per_sm = ceil_div(tuning_for(device).combine_blocks_per_sm, spec.top_k <= 8 ? 1 : 2);
  return spec;
}

/// A dispatch of up to `num_tokens` tokens; `reuse_routing`: the last routing is kept, rows are only moved.
constexpr LocalDispatchPlan plan_dispatch(const LocalDispatchSpec& spec, i64 num_tokens, bool reuse_routing,
                                          const LocalDevice& device, i32 max_sms = 0) {
  const LocalTuning& tuning = tuning_for(device);
  const i32 num_sms = sms_for(device, max_sms);
  const bool few_tokens = num_tokens <= max_decode_tokens(spec, device);
  LocalDispatchPlan plan;
  if (few_tokens) {
    const i32 wanted = num_sms * tuning.dispatch_blocks_per_sm;
    plan.parts = parts_of_row(num_tokens, spec.token_bytes() / 16, tuning.decode_threads, wanted, tuning.max_parts);
  }
  if (few_tokens && !reuse_routing) {
    plan.variant = DispatchVariant::decode;
    // A block to spare publishes what is known about experts.
    const i64 spare = device.is_host ? 0 : 1;
    plan.grid = grid_for(num_tokens * plan.parts + spare, device, max_sms);
    plan.scratch_bytes = DecodeScratch(spec.num_experts).total;
    return plan;
  }
  plan.variant = reuse_routing ? DispatchVariant::move : DispatchVariant::prefill;
  plan.every_block_counts = !reuse_routing && num_tokens * spec.top_k <= tuning.every_block_counts_max_entries &&
                            spec.num_experts <= tuning.every_block_counts_max_experts;
  const i32 experts = reuse_routing ? 0 : spec.num_experts;
  const PrefillScratch fixed(experts, plan.every_block_counts != 0, 0);
  if (plan.parts > 0) {
    plan.grid = grid_for(num_tokens * plan.parts, device, max_sms);
  } else {
    plan.grid = static_cast<i32>(max_of(min_of(num_tokens, static_cast<i64>(num_sms)), 1L));
    const bool has_ring = !device.is_host && spec.quantize == QuantFormat::none;
    plan.ring_bytes = !has_ring ? 0 : min_of(tuning.ring_bytes, device.max_scratch_bytes - fixed.total) / 128 * 128;
  }
  plan.scratch_bytes = PrefillScratch(experts, plan.every_block_counts != 0, plan.ring_bytes).total;
  return plan;
}

/// A combine of up to `num_tokens` tokens.
constexpr LocalCombinePlan plan_combine(const LocalCombineSpec& spec, i64 num_tokens, const LocalDevice& device,
                                        i32 max_sms = 0) {
  const LocalTuning& tuning = tuning_for(device);
  const i32 num_sms = sms_for(device, max_sms);
  const i64 units = spec.hidden * min_of(bytes_of(spec.input), bytes_of(spec.output)) / 16;
  const i32 wanted = num_sms * tuning.combine_share_blocks_per_sm;
  LocalCombinePlan plan;
  plan.parts = parts_of_row(num_tokens, units, tuning.combine_threads, wanted, tuning.max_parts);
  plan.grid = grid_for(num_tokens * plan.parts, device, max_sms);
  return plan;
}

/// Words of LocalDispatchArgs::block_counts that any plan on this device may use.
constexpr i64 prefill_workspace_words(const LocalDispatchSpec& spec, const LocalDevice& device) {
  return prefill_workspace_words(spec.num_experts, device.num_sms);
}

}  // namespace moelink

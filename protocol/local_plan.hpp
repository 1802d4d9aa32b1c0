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
  i32 decode_threads;  ///< block sizes
  i32 prefill_threads;
  i32 combine_threads;
  i32 combine_blocks_per_sm;   ///< registers are bounded so that so many fit
  i32 decode_max_entries;      ///< decode up to so many tokens * top_k ...
  i32 decode_max_experts;      ///< ... and experts: every block sums all counts
  i32 dispatch_blocks_per_sm;  ///< rows are shared by blocks while fewer than this * SMs would be busy
  i32 combine_share_blocks_per_sm;
  i32 max_parts;
  i32 ring_bytes;  ///< prefill, move: scratch for rows under way
};

inline constexpr LocalTuning kGpuTuning{.decode_threads = 128,
                                        .prefill_threads = 512,
                                        .combine_threads = 128,
                                        .combine_blocks_per_sm = 6,
                                        .decode_max_entries = 2048,
                                        .decode_max_experts = 1024,
                                        .dispatch_blocks_per_sm = 2,
                                        .combine_share_blocks_per_sm = 4,
                                        .max_parts = 8,
                                        .ring_bytes = 200 << 10};

inline constexpr LocalTuning kHostTuning{.decode_threads = 1,
                                         .prefill_threads = 1,
                                         .combine_threads = 1,
                                         .combine_blocks_per_sm = 1,
                                         .decode_max_entries = 512,
                                         .decode_max_experts = kMaxExperts,
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
  i32 parts = 1;          ///< LocalDispatchArgs::parts
  i32 ring_bytes = 0;     ///< LocalDispatchArgs::ring_bytes
  i32 scratch_bytes = 0;  ///< of one block
  friend constexpr bool operator==(const LocalDispatchPlan&, const LocalDispatchPlan&) = default;
};

struct LocalCombinePlan {
  i32 grid = 1;
  i32 parts = 1;  ///< LocalCombineArgs::parts
  friend constexpr bool operator==(const LocalCombinePlan&, const LocalCombinePlan&) = default;
};

/// SMs (threads) that a call may occupy; max_sms 0: all.
constexpr i32 sms_for(const LocalDevice& device, i32 max_sms) {
  return max_sms > 0 ? min_of(max_sms, device.num_sms) : device.num_sms;
}

/// Blocks that share one row of `units` 16-byte units: enough to give `wanted_blocks` something to do, while each of
/// their threads still has a unit.
constexpr i32 parts_of_row(i64 num_tokens, i64 units, i32 threads, i32 wanted_blocks, i32 max_parts) {
  const i64 useful = max_of(min_of(ceil_div(units, static_cast<i64>(threads)), static_cast<i64>(max_parts)), 1L);
  const i64 wanted = ceil_div(static_cast<i64>(wanted_blocks), max_of(num_tokens, 1L));
  return static_cast<i32>(min_of(useful, wanted));
}

/// The most tokens that dispatch still takes as decode; -1: never, not even none.
constexpr i64 max_decode_tokens(const LocalDispatchSpec& spec, const LocalDevice& device) {
  const LocalTuning& tuning = tuning_for(device);
  return spec.num_experts <= tuning.decode_max_experts ? tuning.decode_max_entries / spec.top_k : -1;
}

/// The spec of a variant: block sizes are chosen here.
constexpr LocalDispatchSpec with_threads(LocalDispatchSpec spec, DispatchVariant variant, const LocalDevice& device) {
  const LocalTuning& tuning = tuning_for(device);
  spec.threads = variant == DispatchVariant::decode ? tuning.decode_threads : tuning.prefill_threads;
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
  LocalDispatchPlan plan;
  if (!reuse_routing && num_tokens <= max_decode_tokens(spec, device)) {
    const i32 wanted = num_sms * tuning.dispatch_blocks_per_sm;
    plan.variant = DispatchVariant::decode;
    plan.parts = parts_of_row(num_tokens, spec.row_bytes / 16, tuning.decode_threads, wanted, tuning.max_parts);
    // On a GPU blocks beyond the resident ones cost nothing. On the host a block is a thread.
    const i64 items = max_of(num_tokens * plan.parts, 1L);
    plan.grid = static_cast<i32>(device.is_host || max_sms > 0 ? min_of(items, static_cast<i64>(num_sms)) : items);
    plan.scratch_bytes = DecodeScratch(spec.num_experts, static_cast<i32>(num_tokens) * spec.top_k).total;
    return plan;
  }
  plan.variant = reuse_routing ? DispatchVariant::move : DispatchVariant::prefill;
  plan.grid = static_cast<i32>(min_of(max_of(num_tokens, 1L), static_cast<i64>(num_sms)));
  const i32 experts = reuse_routing ? 0 : spec.num_experts;
  const i32 fixed_bytes = PrefillScratch(experts, 0).total;
  plan.ring_bytes = device.is_host ? 0 : min_of(tuning.ring_bytes, device.max_scratch_bytes - fixed_bytes) / 128 * 128;
  plan.scratch_bytes = PrefillScratch(experts, plan.ring_bytes).total;
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
  const i64 items = max_of(num_tokens * plan.parts, 1L);
  plan.grid = static_cast<i32>(device.is_host || max_sms > 0 ? min_of(items, static_cast<i64>(num_sms)) : items);
  return plan;
}

/// Words of LocalDispatchArgs::block_counts that any plan on this device may use.
constexpr i64 prefill_workspace_words(const LocalDispatchSpec& spec, const LocalDevice& device) {
  return prefill_workspace_words(spec.num_experts, device.num_sms);
}

}  // namespace moelink

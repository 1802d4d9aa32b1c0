// How the nvlink combine is launched: block sizes, grid, how rows are shared. Pure functions; nothing here is seen by
// other ranks (what travels is a function of the configuration, nvlink_moe.hpp).
#pragma once

#include "moelink/protocol/local_plan.hpp"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// Measured choices.
struct NvlinkCombineTuning {
  i32 threads;
  i32 blocks_per_sm;        ///< registers are bounded so that so many fit
  i32 least_blocks_per_sm;  ///< a grid is not smaller, however few the own tokens: others may have sent many
};
inline constexpr NvlinkCombineTuning kGpuCombineTuning{.threads = 128, .blocks_per_sm = 3, .least_blocks_per_sm = 1};
inline constexpr NvlinkCombineTuning kHostCombineTuning{.threads = 1, .blocks_per_sm = 1, .least_blocks_per_sm = 1};

constexpr const NvlinkCombineTuning& combine_tuning_for(const LocalDevice& device) {
  return device.is_host ? kHostCombineTuning : kGpuCombineTuning;
}

constexpr NvlinkCombineSpec with_threads(NvlinkCombineSpec spec, const LocalDevice& device) {
  const NvlinkCombineTuning& tuning = combine_tuning_for(device);
  spec.threads = tuning.threads;
  // Rows beyond eight keep more indices and weights in registers.
  spec.blocks_per_sm = ceil_div(tuning.blocks_per_sm, spec.top_k <= 8 ? 1 : 2);
  return spec;
}

struct NvlinkCombinePlan {
  i32 grid = 1;
  i32 send_blocks = 1;      ///< NvlinkCombineArgs
  i32 sum_blocks = 1;       ///< likewise
  i32 first_sum_block = 0;  ///< likewise
  friend constexpr bool operator==(const NvlinkCombinePlan&, const NvlinkCombinePlan&) = default;
};

constexpr void apply(const NvlinkCombinePlan& plan, NvlinkCombineArgs& args) {
  args.send_blocks = plan.send_blocks;
  args.sum_blocks = plan.sum_blocks;
  args.first_sum_block = plan.first_sum_block;
}

/// A combine of up to `num_tokens` tokens here, on at most `max_blocks` blocks, which can all wait at the same time; of
/// these `sms` SMs (host: threads) are theirs. The other ranks are taken to have as many tokens.
constexpr NvlinkCombinePlan plan_nvlink_combine(const NvlinkCombineSpec& spec, i64 num_tokens, i32 max_blocks, i32 sms,
                                                const LocalDevice& device) {
  const i64 sums = ceil_div(num_tokens, static_cast<i64>(spec.tp_size));
  // Each token goes to at most top_k ranks, this one or others.
  const i64 partials = sums * min_of(spec.num_ranks - 1, spec.top_k);
  NvlinkCombinePlan plan;
  while (!device.is_host && plan.sum_blocks < partial_parts(spec.hidden) &&
         plan.sum_blocks * 2 * (sums + partials) <= max_blocks) {
    plan.sum_blocks *= 2;
  }
  plan.send_blocks = plan.sum_blocks;
  const i64 least = static_cast<i64>(sms) * combine_tuning_for(device).least_blocks_per_sm;
  const i64 wanted = max_of((sums + partials) * plan.sum_blocks, least);
  plan.grid = static_cast<i32>(max_of(min_of(wanted, static_cast<i64>(max_blocks)), 1L));
  plan.first_sum_block = static_cast<i32>(partials * plan.send_blocks % plan.grid);
  return plan;
}

}  // namespace moelink

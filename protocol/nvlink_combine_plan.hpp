// How the nvlink combine is launched: block sizes, grid, how rows are shared. Pure functions; nothing here is seen by
// other ranks (what travels is a function of the configuration, nvlink_moe.hpp).
#pragma once

#include "moelink/protocol/local_plan.hpp"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// Measured choices.
struct NvlinkCombineTuning {
  i32 teams;             ///< of a block, of kCombineTeamThreads each: as many as registers allow without spills
  i32 teams_of_many_k;   ///< the same if top_k is above 8: more indices and weights are held
  i64 late_flags_bytes;  ///< from so many bytes to send on, flags wait until the sender has summed rows of its own
};
inline constexpr NvlinkCombineTuning kGpuCombineTuning{.teams = 3, .teams_of_many_k = 2, .late_flags_bytes = 512 << 10};

/// Threads that work on one row together.
inline constexpr i32 kCombineTeamThreads = 128;

/// Scratch of a team: four words; what it has summed of one row of its own, as much as fits (on the host instead a
/// pointer for each rank); and for each of its warps the slots of a token at each rank.
struct CombineTeamScratch {
  static constexpr i32 kWordBytes = 16;
  static constexpr i32 kMostHeldBytes = 32 << 10;
  i32 held_bytes;
  i32 slots;  ///< i32[warps][slots_stride()]
  i32 total;

  MOELINK_DEVICE constexpr explicit CombineTeamScratch(const NvlinkCombineSpec& spec)
      : held_bytes(held_bytes_of(spec)),
        slots(kWordBytes + held_bytes),
        total(slots + kCombineTeamThreads / 32 * slots_stride(spec) * 4) {}

  MOELINK_DEVICE static constexpr i32 slots_stride(const NvlinkCombineSpec& spec) {
    return round_up(spec.num_ranks, 4);
  }

 private:
  /// A block of the host is one thread.
  MOELINK_DEVICE static constexpr i32 held_bytes_of(const NvlinkCombineSpec& spec) {
    if (spec.threads <= 1) return round_up(spec.num_ranks * static_cast<i32>(sizeof(void*)), 16);
    const i64 row_bytes = round_up(spec.hidden * bytes_of(spec.partial), kCombineTeamThreads * 32L);
    return static_cast<i32>(min_of(row_bytes, static_cast<i64>(kMostHeldBytes)));
  }
};

/// Block size. `whole_sms`: a block has an SM for itself, and as many teams as fit; if not, one team.
constexpr NvlinkCombineSpec with_threads(NvlinkCombineSpec spec, const LocalDevice& device, bool whole_sms) {
  const i32 most = spec.top_k <= 8 ? kGpuCombineTuning.teams : kGpuCombineTuning.teams_of_many_k;
  spec.threads = device.is_host ? 1 : (whole_sms ? most : 1) * kCombineTeamThreads;
  spec.blocks_per_sm = device.is_host || whole_sms ? 1 : most;
  return spec;
}

/// Teams of a block: what the kernel takes for blocks. The host's blocks are one thread each.
constexpr i32 combine_teams(const NvlinkCombineSpec& spec, const LocalDevice& device) {
  return device.is_host ? 1 : spec.threads / kCombineTeamThreads;
}

/// Scratch of one block.
constexpr i32 combine_scratch_bytes(const NvlinkCombineSpec& spec, const LocalDevice& device) {
  return combine_teams(spec, device) * CombineTeamScratch(spec).total;
}

struct NvlinkCombinePlan {
  i32 grid = 1;
  i32 send_blocks = 1;      ///< NvlinkCombineArgs
  i32 sum_blocks = 1;       ///< likewise
  i32 first_sum_block = 0;  ///< likewise
  i32 late_flags = 0;       ///< likewise
  friend constexpr bool operator==(const NvlinkCombinePlan&, const NvlinkCombinePlan&) = default;
};

constexpr void apply(const NvlinkCombinePlan& plan, NvlinkCombineArgs& args) {
  args.send_blocks = plan.send_blocks;
  args.sum_blocks = plan.sum_blocks;
  args.first_sum_block = plan.first_sum_block;
  args.late_flags = plan.late_flags;
}

/// A combine of up to `num_tokens` tokens here, on at most `max_blocks` blocks, which can all wait at the same time.
/// The other ranks are taken to have as many tokens; the grid does not count on it, since they may have sent many more.
constexpr NvlinkCombinePlan plan_nvlink_combine(const NvlinkCombineSpec& spec, i64 num_tokens, i32 max_blocks,
                                                const LocalDevice& device) {
  const i64 sums = ceil_div(num_tokens, static_cast<i64>(spec.tp_size));
  // Each token goes to at most top_k ranks, this one or others.
  const i64 partials = sums * min_of(spec.num_ranks - 1, spec.top_k);
  NvlinkCombinePlan plan;
  plan.grid = max_of(max_blocks, 1);
  const i64 teams = static_cast<i64>(plan.grid) * combine_teams(spec, device);
  const auto blocks_of_row = [&](i64 rows, i64 free_teams) {
    i32 blocks = 1;
    while (!device.is_host && blocks < partial_parts(spec.hidden) && blocks * 2 * rows <= free_teams) blocks *= 2;
    return blocks;
  };
  // Sends come first, since others wait for them; but a team for each sum, so that it need not wait for a send.
  plan.send_blocks = blocks_of_row(partials, teams - sums);
  plan.sum_blocks = blocks_of_row(sums, teams - partials * plan.send_blocks);
  plan.first_sum_block = static_cast<i32>(partials * plan.send_blocks % teams);
  const bool many = partials * spec.hidden * bytes_of(spec.partial) >= kGpuCombineTuning.late_flags_bytes;
  plan.late_flags = !device.is_host && many && !spec.has_remotes ? 1 : 0;
  return plan;
}

}  // namespace moelink

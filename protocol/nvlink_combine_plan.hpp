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
  i64 many_bytes;        ///< from so many bytes of partials of own tokens on, NvlinkCombineMany takes over
  i32 many_warps;        ///< of its blocks; one stores the flags of the others
  i32 many_ring_bytes;   ///< about what its blocks have in scratch
  i32 many_lag_rounds;   ///< pieces of a warp that its sums are behind what it sends
};
inline constexpr NvlinkCombineTuning kGpuCombineTuning{.teams = 3,
                                                       .teams_of_many_k = 2,
                                                       .late_flags_bytes = 512 << 10,
                                                       .many_bytes = 1 << 20,
                                                       .many_warps = 12,
                                                       .many_ring_bytes = 216 << 10,
                                                       .many_lag_rounds = 2};

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
  i32 send_rows = 0;        ///< likewise
  i32 sum_blocks = 1;       ///< likewise
  i32 first_sum_block = 0;  ///< likewise
  i32 late_flags = 0;       ///< likewise
  i32 lag_tokens = 0;       ///< likewise
  friend constexpr bool operator==(const NvlinkCombinePlan&, const NvlinkCombinePlan&) = default;
};

constexpr void apply(const NvlinkCombinePlan& plan, NvlinkCombineArgs& args) {
  args.send_blocks = plan.send_blocks;
  args.send_rows = plan.send_rows;
  args.sum_blocks = plan.sum_blocks;
  args.first_sum_block = plan.first_sum_block;
  args.late_flags = plan.late_flags;
  args.lag_tokens = plan.lag_tokens;
}

/// Partials of so many tokens: each goes to at most top_k ranks, this one or others.
constexpr i64 most_partials(const NvlinkCombineSpec& spec, i64 tokens) {
  return tokens * min_of(spec.num_ranks - 1, spec.top_k);
}

/// A combine of up to `num_tokens` tokens here, on at most `max_blocks` blocks, which can all wait at the same time.
/// The other ranks are taken to have as many tokens; the grid does not count on it, since they may have sent many more.
constexpr NvlinkCombinePlan plan_nvlink_combine(const NvlinkCombineSpec& spec, i64 num_tokens, i32 max_blocks,
                                                const LocalDevice& device) {
  const i64 sums = ceil_div(num_tokens, static_cast<i64>(spec.tp_size));
  const i64 partials = most_partials(spec, sums);
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
  plan.send_rows = static_cast<i32>(max_of((teams - sums) / plan.send_blocks, 1L));
  plan.sum_blocks = blocks_of_row(sums, teams - partials * plan.send_blocks);
  plan.first_sum_block = static_cast<i32>(partials * plan.send_blocks % teams);
  const bool many = partials * spec.hidden * bytes_of(spec.partial) >= kGpuCombineTuning.late_flags_bytes;
  plan.late_flags = !device.is_host && many && !spec.has_remotes ? 1 : 0;
  return plan;
}

// NvlinkCombineMany.

/// Block scratch: where each warp keeps what is under way of its pieces of rows. A piece is at most what a warp holds
/// the sum of in registers.
struct CombineManyScratch {
  static constexpr i32 kWordBytes = 16;
  static constexpr i32 kMostElements = 1024;
  static constexpr i32 kMostStages = 16;
  static constexpr i32 kPostBytes = 32 * (4 * 8 + 2 * 4);  ///< FlagPosts
  i32 warps;                                               ///< that have pieces; on a GPU one more stores their flags
  i32 least_pieces;                                        ///< of a row: a power of two, at most its parts
  i32 piece_elements;                                      ///< of the largest
  i32 stage_bytes;                                         ///< such a piece of one row
  i32 own_bytes;                                           ///< its sum
  i32 stages;                                              ///< of a warp; 0: a piece is too large
  i32 posts;                                               ///< FlagPosts
  i32 barriers;                                            ///< u64[warps][kMostStages]
  i32 slots;  ///< i32[warps][32]: of a token at each rank, where partials are lines
  i32 own;    ///< u8[warps][own_bytes]
  i32 ring;   ///< u8[warps][stages][stage_bytes]
  i32 total;

  MOELINK_DEVICE constexpr explicit CombineManyScratch(const NvlinkCombineSpec& spec)
      : warps(max_of(spec.threads / 32 - 1, 1)),
        least_pieces(least_pieces_of(spec)),
        piece_elements(elements_of_part(spec) * (partial_parts(spec.hidden) / least_pieces)),
        stage_bytes(round_up(piece_elements * bytes_of(spec.input), 16)),
        own_bytes(round_up(piece_elements * bytes_of(spec.partial), 16)),
        stages(0),
        posts(kWordBytes),
        barriers(posts + kPostBytes),
        slots(barriers + warps * kMostStages * 8),
        own(slots + warps * 32 * 4),
        ring(round_up(own + warps * own_bytes, 128)),
        total(ring) {
    const i32 ring_bytes = kGpuCombineTuning.many_ring_bytes - ring;
    if (piece_elements <= kMostElements) stages = min_of(ring_bytes / (warps * stage_bytes), kMostStages);
    total = ring + warps * stages * stage_bytes;
  }

 private:
  MOELINK_DEVICE static constexpr i32 elements_of_part(const NvlinkCombineSpec& spec) {
    const i64 units = ceil_div(spec.hidden, kPartialUnit);
    return static_cast<i32>(ceil_div(units, i64{partial_parts(spec.hidden)}) * kPartialUnit);
  }
  MOELINK_DEVICE static constexpr i32 least_pieces_of(const NvlinkCombineSpec& spec) {
    const i32 parts = partial_parts(spec.hidden);
    i32 pieces = 1;
    while (pieces < parts && elements_of_part(spec) * (parts / pieces) > kMostElements) pieces *= 2;
    return pieces;
  }
};

/// Its block size.
constexpr NvlinkCombineSpec with_many_threads(NvlinkCombineSpec spec, const LocalDevice& device) {
  spec.threads = device.is_host ? 1 : kGpuCombineTuning.many_warps * 32;
  spec.blocks_per_sm = 1;
  return spec;
}

/// Whether the kernel can be: it knows neither groups nor remotes, a lane knows a rank, and a row has to have pieces
/// that are small enough.
constexpr bool may_combine_many(const NvlinkCombineSpec& spec, const LocalDevice& device) {
  const CombineManyScratch scratch(with_many_threads(spec, device));
  return spec.tp_size == 1 && !spec.has_remotes && spec.num_ranks > 1 && spec.num_ranks <= 32 && scratch.stages > 0 &&
         scratch.total <= device.max_scratch_bytes;
}
/// Whether it takes a call of up to so many tokens here. What the rank has to send is not known to the host: other ranks
/// are taken to have as many tokens.
constexpr bool takes_combine_many(const NvlinkCombineSpec& spec, i64 num_tokens) {
  return most_partials(spec, num_tokens) * spec.hidden * bytes_of(spec.partial) >= kGpuCombineTuning.many_bytes;
}

/// As plan_nvlink_combine(), for NvlinkCombineMany, whose warps are what shares.
constexpr NvlinkCombinePlan plan_nvlink_combine_many(const NvlinkCombineSpec& spec, i64 num_tokens, i32 max_blocks) {
  const CombineManyScratch scratch(spec);
  const i64 partials = most_partials(spec, num_tokens);
  NvlinkCombinePlan plan;
  plan.grid = max_of(max_blocks, 1);
  const i64 workers = static_cast<i64>(plan.grid) * scratch.warps;
  i32 pieces = scratch.least_pieces;
  while (pieces < partial_parts(spec.hidden) && pieces * 2 * (partials + num_tokens) <= workers) pieces *= 2;
  plan.send_blocks = pieces;
  plan.sum_blocks = pieces;
  plan.first_sum_block = static_cast<i32>(partials * pieces % workers);
  plan.lag_tokens = static_cast<i32>(kGpuCombineTuning.many_lag_rounds * workers / pieces);
  return plan;
}

}  // namespace moelink

// Where rows go: from the counts of all sources, the first row of every (expert, source). Every block works this out
// for itself, in scratch, so that none waits for another.
#pragma once

#include "moelink/device/moe/experts.cuh"
#include "moelink/device/moe/nvlink_header.cuh"
#include "moelink/device/moe/routing.cuh"

namespace moelink {

/// Places of this rank's rows, in block scratch: of source g and local expert e they are [first(g, e), first(g + 1,
/// e)), of which those below limits.end(e) exist.
template <class S>
class Places {
 public:
  MOELINK_DEVICE Places(S spec, const NvlinkDispatchArgs& args, void* scratch, i32 first_byte)
      : limits(args.local),
        num_experts(first_expert_of(args.window.rank + 1, spec().num_experts, spec().num_ranks) -
                    first_expert_of(args.window.rank, spec().num_experts, spec().num_ranks)),
        num_groups(spec().num_ranks / spec().tp_size),
        stride_(SourceScratch::row_stride(spec())) {
    const SourceScratch at(spec(), first_byte);
    rows_ = reinterpret_cast<u32*>(static_cast<u8*>(scratch) + at.rows);
  }

  /// By the first warp, when SourceHeaders has the counts (which this overwrites); for all threads after the next block
  /// barrier. A lane has kAtOnce experts, which are neighbours.
  template <class Exec>
  MOELINK_DEVICE void make(const Exec& ex) const {
    constexpr i32 kRound = kAtOnce * Exec::kWarpSize;
    u32 below = 0;  // rows of the experts of earlier rounds
    MOELINK_NO_UNROLL
    for (i32 from = 0; from < num_experts; from += kRound) {
      const i32 expert = from + ex.lane() * kAtOnce;
      u32 start[kAtOnce];
      const u32 rows = count(expert, start);
      const u32 before = warp_exclusive_sum(ex, rows);
      MOELINK_UNROLL
      for (i32 i = 0; i < kAtOnce; ++i) start[i] = limits.first(expert + i, below + before + start[i]);
      if (expert < num_experts) place(expert, start);
      below += warp_broadcast(ex, before + rows, Exec::kWarpSize - 1);
    }
  }

  [[nodiscard]] MOELINK_DEVICE u32 first(i32 group, i32 expert) const { return rows_[group * stride_ + expert]; }
  /// Rows of an expert that exist.
  [[nodiscard]] MOELINK_DEVICE u32 kept(i32 expert) const {
    return min_of(first(num_groups, expert), limits.end(expert)) - first(0, expert);
  }

  /// The row of an entry, or -1 if it has none here: another rank's, no room, or nothing its source has announced.
  [[nodiscard]] MOELINK_DEVICE i32 row_of(i32 group, const SlotEntry& entry) const {
    if (static_cast<u32>(entry.expert) >= static_cast<u32>(num_experts)) return -1;
    const u32 start = first(group, entry.expert);
    const u32 rank = static_cast<u32>(entry.rank);
    if (rank >= first(group + 1, entry.expert) - start || start + rank >= limits.end(entry.expert)) return -1;
    return static_cast<i32>(start + rank);
  }

  /// Rows that exist in all, by the call: nothing is stored past them.
  [[nodiscard]] MOELINK_DEVICE u32 total_rows() const {
    return limits.packed() ? limits.max_rows : limits.max_rows * static_cast<u32>(num_experts);
  }

  /// Entries of a group that find no room at one expert.
  [[nodiscard]] MOELINK_DEVICE u32 dropped(i32 group, i32 expert) const {
    const u32 end = first(group + 1, expert);
    return end - min_of(max_of(first(group, expert), limits.end(expert)), end);
  }

  RowLimits limits;
  i32 num_experts;  ///< of this rank
  i32 num_groups;

 private:
  static constexpr i32 kAtOnce = 4;
  static_assert(sizeof(Vec16) == kAtOnce * sizeof(u32));

  /// The counts, or first rows, of a group's experts [expert, expert + kAtOnce). A group's words are padded to that.
  MOELINK_DEVICE Vec16& words(i32 group, i32 expert) const {
    return *reinterpret_cast<Vec16*>(rows_ + group * stride_ + expert);
  }

  /// Of experts [expert, expert + kAtOnce): the sum of (aligned) counts of those before each, and of all. Zero from
  /// num_experts on.
  MOELINK_DEVICE u32 count(i32 expert, u32* start) const {
    u32 counts[kAtOnce] = {};
    MOELINK_NO_UNROLL
    for (i32 group = 0; expert < num_experts && group < num_groups; ++group) {
      const Vec16 of_group = words(group, expert);
      counts[0] += of_group.x;
      counts[1] += of_group.y;
      counts[2] += of_group.z;
      counts[3] += of_group.w;
    }
    u32 sum = 0;
    MOELINK_UNROLL
    for (i32 i = 0; i < kAtOnce; ++i) {
      start[i] = sum;
      sum += expert + i < num_experts ? limits.aligned(counts[i]) : 0;
    }
    return sum;
  }

  /// Counts become first rows, group by group, from `row` on.
  MOELINK_DEVICE void place(i32 expert, u32* row) const {
    MOELINK_NO_UNROLL
    for (i32 group = 0; group <= num_groups; ++group) {
      const Vec16 counts = group < num_groups ? words(group, expert) : Vec16{0, 0, 0, 0};
      words(group, expert) = {row[0], row[1], row[2], row[3]};
      row[0] += counts.x;
      row[1] += counts.y;
      row[2] += counts.z;
      row[3] += counts.w;
    }
  }

  i32 stride_;
  u32* rows_;
};

/// By one block: offsets and counts, and per source how many entries found no room. Returns this thread's share of
/// those.
template <class Exec, class S>
MOELINK_DEVICE u32 publish_places(const Exec& ex, const NvlinkDispatchArgs& args, const Places<S>& places) {
  if (places.num_experts == 0 && ex.thread() == 0) args.local.offsets[0] = 0;
  MOELINK_NO_UNROLL
  for (i32 expert = ex.thread(); expert < places.num_experts; expert += ex.num_threads()) {
    const u32 first = places.first(0, expert);
    const u32 kept = places.kept(expert);
    args.local.offsets[expert] = first;
    args.local.counts[expert] = static_cast<i32>(kept);
    if (expert + 1 == places.num_experts) args.local.offsets[expert + 1] = places.limits.end_of_pads(first, kept);
  }
  u32 all_dropped = 0;
  for (i32 group = ex.warp(); group < places.num_groups; group += ex.num_warps()) {
    u32 dropped = 0;
    MOELINK_NO_UNROLL
    for (i32 expert = ex.lane(); expert < places.num_experts; expert += Exec::kWarpSize) {
      dropped += places.dropped(group, expert);
    }
    all_dropped += dropped;
    dropped = warp_sum(ex, dropped);
    if (ex.lane() == 0) args.tables.dropped[group] = static_cast<i32>(dropped);
  }
  return all_dropped;
}

/// By one block, after a fault: nothing is there for whatever runs next. The combine that follows has no call to
/// answer: it finds kNoDispatch and leaves.
template <class Exec, class S>
MOELINK_DEVICE void publish_nothing(const Exec& ex, const NvlinkDispatchArgs& args, const Places<S>& places) {
  MOELINK_NO_UNROLL
  for (i32 expert = ex.thread(); expert <= places.num_experts; expert += ex.num_threads()) {
    args.local.offsets[expert] = 0;
    if (expert < places.num_experts) args.local.counts[expert] = 0;
  }
  MOELINK_NO_UNROLL
  for (i32 group = ex.thread(); group < places.num_groups; group += ex.num_threads()) {
    args.tables.num_received[group] = group == args.window.rank / args.shape.tp_size ? NvlinkTables::kNoDispatch : 0;
  }
}

/// What is known of an entry whose row may be here: for experts (if `row` >= 0), and for combine.
MOELINK_DEVICE void publish_slot_entry(const NvlinkDispatchArgs& args, i32 top_k, i32 group, i32 slot, i32 token, i32 k,
                                       i32 row, const SlotEntry& entry) {
  const i64 place = (static_cast<i64>(group) * args.shape.max_tokens + slot) * top_k + k;
  args.tables.row_of_entry[place] = row;
  args.tables.weight_of_entry[place] = entry.weight;
  if (row < 0) return;
  const i64 first_rank = static_cast<i64>(group) * args.shape.tp_size;
  args.local.expert_of_row[row] = entry.expert;
  args.local.weight_of_row[row] = entry.weight;
  args.local.source_of_row[row] = (first_rank * args.shape.max_tokens + token) * top_k + k;
}

/// By all warps of all blocks, each of which has made the places, but the first `busy_warps` of each: marks (on request
/// clears) the pads of every expert. Several warps share those of one expert if there are enough.
template <class Exec, class S>
MOELINK_DEVICE void fill_pads_of_places(const Exec& ex, S spec, const NvlinkDispatchArgs& args, const Places<S>& places,
                                        i32 busy_warps = 0) {
  if (places.num_experts == 0 || !has_pads(args.local) || ex.warp() < busy_warps) return;
  const u32 num_experts = places.num_experts;
  const u32 per_block = ex.num_warps() - busy_warps;
  const u32 num_warps = ex.num_blocks() * per_block;
  const u32 warp = (ex.num_blocks() - 1 - ex.block()) * per_block + ex.warp() - busy_warps;
  const u32 members = max_of(num_warps / num_experts, 1U);
  const u32 member = warp / num_experts;
  if (member >= members) return;
  MOELINK_NO_UNROLL
  for (u32 expert = warp % num_experts; expert < num_experts; expert += num_warps) {
    const u32 first = places.first(0, static_cast<i32>(expert));
    const u32 kept = places.kept(static_cast<i32>(expert));
    fill_pads(ex, spec, args.local, first + kept, places.limits.end_of_pads(first, kept), member, members);
  }
}

/// The same from offsets and counts of an earlier call, whose routing is reused: only what is asked to be zero.
template <class Exec, class S>
MOELINK_DEVICE void clear_pads_again(const Exec& ex, S spec, const NvlinkDispatchArgs& args, const Places<S>& places,
                                     i32 busy_warps = 0) {
  if (args.local.zero_pads == 0 || !has_pads(args.local) || ex.warp() < busy_warps) return;
  const u32 num_warps = ex.num_blocks() * (ex.num_warps() - busy_warps);
  const u32 warp = (ex.warp() - busy_warps) * ex.num_blocks() + ex.block();
  MOELINK_NO_UNROLL
  for (i32 expert = 0; expert < places.num_experts; ++expert) {
    const u32 first = static_cast<u32>(args.local.offsets[expert]);
    const u32 kept = static_cast<u32>(args.local.counts[expert]);
    const u32 end = min_of(places.limits.end_of_pads(first, kept), places.total_rows());
    if (first + kept < end) fill_pads(ex, spec, args.local, first + kept, end, warp, num_warps);
  }
}

}  // namespace moelink

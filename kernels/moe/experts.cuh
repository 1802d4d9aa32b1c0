// What a dispatch says about experts: offsets, counts, and the rows that hold nothing.
#pragma once

#include "moelink/device/moe/routing.cuh"
#include "moelink/device/primitives/row_copy.cuh"
#include "moelink/device/primitives/scale_copy.cuh"
#include "moelink/device/primitives/stable_rank.cuh"

namespace moelink {

/// By one warp: marks (and on request clears) every `stride`-th of the pad rows [first, end), from first + index.
template <class Exec, class S>
MOELINK_DEVICE void fill_pads(const Exec& ex, S spec, const LocalDispatchArgs& args, u32 first, u32 end, u32 index,
                              u32 stride) {
  constexpr u32 kLanes = Exec::kWarpSize;
  for (i64 row = first + index * kLanes + ex.lane(); row < end; row += stride * kLanes) args.expert_of_row[row] = -1;
  if (args.zero_pads == 0) return;
  const ScalePart<Exec, S> scales(spec);
  for (i64 row = first + index; row < end; row += stride) {
    clear_row(ex, static_cast<u8*>(args.rows) + row * args.row_stride_bytes, spec().row_bytes);
    if (args.row_scales != nullptr) {
      scales.clear(ex, static_cast<u8*>(args.row_scales) + row * spec().scale_bytes);
    }
  }
}

/// Whether there can be rows that hold nothing.
MOELINK_DEVICE bool has_pads(const LocalDispatchArgs& args) {
  return args.layout == RowLayout::batched || args.alignment != 1;
}

/// By all warps of all blocks, each of which knows the counts of all experts (block scratch). Groups of experts are
/// given to warps, those of the last block first; each group's first warp writes offsets, counts and drops. Where there
/// may be many pads, all warps share them.
template <class Exec, class S>
MOELINK_DEVICE void publish_experts(const Exec& ex, S spec, const LocalDispatchArgs& args, const u32* counts) {
  const RowLimits limits(args);
  const u32 num_experts = spec().num_experts;
  const u32 num_warps = ex.num_blocks() * ex.num_warps();
  const u32 per_group = Exec::kIsDevice ? Exec::kWarpSize : ceil_div(num_experts, num_warps);
  const u32 num_groups = ceil_div(num_experts, per_group);
  u32 group = (ex.num_blocks() - 1 - ex.block()) * ex.num_warps() + ex.warp();
  u32 member = 0;
  u32 members = 1;
  const bool many_pads = args.layout == RowLayout::batched || (args.alignment != 1 && args.zero_pads != 0);
  if (many_pads && num_warps > num_groups) {
    member = group / num_groups;
    members = num_warps / num_groups;
    group %= num_groups;
    if (member >= members) return;
  }

  u32 dropped = 0;
  for (; group < num_groups; group += num_warps) {
    const u32 begin = group * per_group;
    const u32 end = min_of(begin + per_group, num_experts);
    u32 below = limits.packed() ? sum_aligned(ex, counts, begin, limits.alignment) : 0;
    for (u32 from = begin; from < end; from += Exec::kWarpSize) {
      const u32 expert = from + ex.lane();
      const u32 count = expert < end ? counts[expert] : 0;
      const u32 below_mine = below + warp_exclusive_sum(ex, limits.aligned(count));
      const u32 first = limits.first(expert, below_mine);
      const u32 kept = min_of(count, limits.end(expert) - first);
      if (member == 0 && expert < end) {
        args.offsets[expert] = first;
        args.counts[expert] = static_cast<i32>(kept);
        if (expert + 1 == num_experts) args.offsets[num_experts] = limits.end_of_pads(first, kept);
        dropped += count - kept;
      }
      below = warp_broadcast(ex, below_mine + limits.aligned(count), Exec::kWarpSize - 1);
      if (!has_pads(args)) continue;
      const int num_lanes = static_cast<int>(min_of<u32>(end - from, Exec::kWarpSize));
      for (int lane = 0; lane < num_lanes; ++lane) {
        const u32 first_of_lane = warp_broadcast(ex, first, lane);
        const u32 kept_of_lane = warp_broadcast(ex, kept, lane);
        fill_pads(ex, spec, args, first_of_lane + kept_of_lane, limits.end_of_pads(first_of_lane, kept_of_lane), member,
                  members);
      }
    }
  }
  report_warp_sum(ex, &args.status->rows_over_capacity, dropped);
}

}  // namespace moelink

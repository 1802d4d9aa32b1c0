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

/// By one block, which knows the counts of all experts (block scratch): offsets and counts. Returns this thread's share
/// of the entries that found no room. A warp takes a warp's width of experts at a time.
template <class Exec, class S>
MOELINK_DEVICE u32 publish_experts(const Exec& ex, S spec, const LocalDispatchArgs& args, const u32* counts) {
  constexpr u32 kLanes = Exec::kWarpSize;
  const RowLimits limits(args);
  const u32 num_experts = spec().num_experts;
  u32 below = 0;
  u32 dropped = 0;
  for (u32 from = ex.warp() * kLanes; from < num_experts; from += ex.num_warps() * kLanes) {
    // The one warp of a host block has summed all experts below on its way.
    if (Exec::kIsDevice && limits.packed()) below = warp_sum(ex, sum_aligned(ex, counts, from, limits.alignment));
    const u32 expert = from + ex.lane();
    const u32 count = expert < num_experts ? counts[expert] : 0;
    below += warp_exclusive_sum(ex, limits.aligned(count));
    if (expert < num_experts) {
      const u32 first = limits.first(expert, below);
      const u32 kept = min_of(count, limits.end(expert) - first);
      args.offsets[expert] = first;
      args.counts[expert] = static_cast<i32>(kept);
      if (expert + 1 == num_experts) args.offsets[num_experts] = limits.end_of_pads(first, kept);
      dropped += count - kept;
    }
    below += limits.aligned(count);
  }
  return dropped;
}

/// By all warps of all blocks, each of which knows the counts of all experts: the pads of every expert. Several warps
/// share those of one expert if there are enough.
template <class Exec, class S>
MOELINK_DEVICE void fill_all_pads(const Exec& ex, S spec, const LocalDispatchArgs& args, const u32* counts) {
  const RowLimits limits(args);
  const u32 num_experts = spec().num_experts;
  const u32 num_warps = ex.num_blocks() * ex.num_warps();
  const u32 warp = (ex.num_blocks() - 1 - ex.block()) * ex.num_warps() + ex.warp();
  const u32 members = max_of(num_warps / num_experts, 1U);
  const u32 member = warp / num_experts;
  if (member >= members) return;
  for (u32 expert = warp % num_experts; expert < num_experts; expert += num_warps) {
    const u32 count = counts[expert];
    if (limits.packed() && count == 0) continue;
    const u32 below = limits.packed() ? warp_sum(ex, sum_aligned(ex, counts, expert, limits.alignment)) : 0;
    const u32 first = limits.first(expert, below);
    const u32 kept = min_of(count, limits.end(expert) - first);
    fill_pads(ex, spec, args, first + kept, limits.end_of_pads(first, kept), member, members);
  }
}

}  // namespace moelink

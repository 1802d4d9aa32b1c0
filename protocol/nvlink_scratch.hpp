// Block scratch of the nvlink dispatch kernels: where each part starts, written once for the host that launches and the
// kernel that carves. All offsets are in bytes, multiples of 16.
#pragma once

#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// What a block knows of all sources (moe/nvlink_header.cuh, moe/nvlink_places.cuh).
struct SourceScratch {
  i32 heads;      ///< u32[num_ranks][DispatchHeader::kCounts]
  i32 rows;       ///< u32[groups + 1][row_stride()]: counts of each source and expert, then their first rows
  i32 warp_sums;  ///< u32[32 + 4]
  i32 total;

  MOELINK_DEVICE constexpr SourceScratch(const NvlinkDispatchSpec& spec, i32 first)
      : heads(first),
        rows(heads + spec.num_ranks * DispatchHeader::kCounts * 4),
        warp_sums(rows + (spec.num_ranks / spec.tp_size + 1) * row_stride(spec) * 4),
        total(warp_sums + 36 * 4) {}

  MOELINK_DEVICE static constexpr i32 row_stride(const NvlinkDispatchSpec& spec) {
    return round_up(ceil_div(spec.num_experts, spec.num_ranks), 4);
  }
};

}  // namespace moelink

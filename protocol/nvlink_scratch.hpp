// Block scratch of the nvlink dispatch kernels: where each part starts, written once for the host that launches and the
// kernel that carves. All offsets are in bytes, multiples of 16.
#pragma once

#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// What a block knows of all sources (moe/nvlink_header.cuh, moe/nvlink_places.cuh).
struct SourceScratch {
  i32 heads;  ///< u32[num_ranks][DispatchHeader::kCounts]
  i32 rows;   ///< u32[groups + 1][row_stride()]: counts of each source and expert, then their first rows
  i32 sum;    ///< u32, for report_block_sum()
  i32 total;

  MOELINK_DEVICE constexpr SourceScratch(const NvlinkDispatchSpec& spec, i32 first)
      : heads(first),
        rows(heads + spec.num_ranks * DispatchHeader::kCounts * 4),
        sum(rows + (spec.num_ranks / spec.tp_size + 1) * row_stride(spec) * 4),
        total(sum + 16) {}

  MOELINK_DEVICE static constexpr i32 row_stride(const NvlinkDispatchSpec& spec) {
    return round_up(ceil_div(spec.num_experts, spec.num_ranks), 4);
  }
};

/// NvlinkDecode: `num_tokens` as LocalDispatchArgs has it; 0 if the routing is reused. What depends on it comes last,
/// so that a kernel knows all other addresses when it is compiled.
struct NvlinkDecodeScratch {
  i32 counts;   ///< u32[num_experts]: this source's entries of each
  i32 ranks;    ///< i32[kMaxTopK]: of the block's token
  i32 slots;    ///< i32[num_ranks]: of the block's token
  i32 items;    ///< u32[groups + 1]: pieces of rows that come from sources before each
  i32 rows;     ///< i32[2][kMaxTopK]
  i32 weights;  ///< float[2][kMaxTopK]
  i32 sum;      ///< u32
  i32 sources;  ///< SourceScratch
  i32 codes;    ///< u16[num_tokens * top_k], readable to a multiple of 16 bytes
  i32 masks;    ///< u32[mask_words()][num_tokens]: the ranks that a token goes to, a bit each
  i32 total;

  MOELINK_DEVICE constexpr NvlinkDecodeScratch(const NvlinkDispatchSpec& spec, i32 num_tokens)
      : counts(0),
        ranks(round_up(spec.num_experts * 4, 16)),
        slots(ranks + kMaxTopK * 4),
        items(slots + round_up(spec.num_ranks * 4, 16)),
        rows(items + round_up((spec.num_ranks / spec.tp_size + 1) * 4, 16)),
        weights(rows + 2 * kMaxTopK * 4),
        sum(weights + 2 * kMaxTopK * 4),
        sources(sum + 16),
        codes(SourceScratch(spec, sources).total),
        masks(codes + round_up(num_tokens * spec.top_k * 2, 16)),
        total(masks + round_up(mask_words(spec) * num_tokens * 4, 16)) {}

  MOELINK_DEVICE static constexpr i32 mask_words(const NvlinkDispatchSpec& spec) {
    return ceil_div(spec.num_ranks, 32);
  }
};

}  // namespace moelink

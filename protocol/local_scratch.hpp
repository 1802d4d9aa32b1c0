// Block scratch of the local kernels: where each part starts and how many bytes a launch asks for, written once for the
// host that launches and the kernel that carves. All offsets are in bytes, multiples of 16.
#pragma once

#include "moelink/protocol/local_moe.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

struct DecodeScratch {
  i32 counts;   ///< u32[num_experts]
  i32 codes;    ///< u16[entries], readable to a multiple of 16 bytes
  i32 rows;     ///< i32[top_k] of the block's token
  i32 weights;  ///< float[top_k] of the block's token
  i32 total;

  MOELINK_DEVICE constexpr DecodeScratch(i32 num_experts, i32 num_entries)
      : counts(0),
        codes(round_up(num_experts * 4, 16)),
        rows(codes + round_up(num_entries * 2, 16)),
        weights(rows + kMaxTopK * 4),
        total(weights + kMaxTopK * 4) {}
};

/// How rows pass through the ring of a block (primitives/row_ring.cuh): in chunks; a row's first is followed by the
/// token's scale bytes if these are a multiple of 16.
struct RingShape {
  i32 chunks_per_row;
  i32 chunk_bytes;  ///< of every chunk but a row's last
  i32 stage_bytes;
  i32 stages;

  static constexpr i32 kChunkBytes = 16 << 10;  ///< largest chunk: small enough for a dozen stages
  static constexpr i32 kMaxStages = 32;

  MOELINK_DEVICE static constexpr i32 bulk_scale_bytes(i32 scale_bytes) {
    return scale_bytes % 16 == 0 ? scale_bytes : 0;
  }

  /// `min_chunks`: at least so many chunks a row. `ring_bytes`: for all stages.
  MOELINK_DEVICE constexpr RingShape(i64 row_bytes, i32 scale_bytes, i32 min_chunks, i32 ring_bytes)
      : chunks_per_row(max_of(static_cast<i32>(ceil_div(row_bytes, static_cast<i64>(kChunkBytes))), min_chunks)),
        chunk_bytes(static_cast<i32>(round_up(ceil_div(row_bytes, static_cast<i64>(chunks_per_row)), 16L))),
        stage_bytes(round_up(chunk_bytes + bulk_scale_bytes(scale_bytes), 128)),
        stages(min_of(ring_bytes / stage_bytes, kMaxStages)) {}
};

struct PrefillScratch {
  i32 experts;    ///< u32[num_experts]: this block's entries of each expert, then the next row of each
  i32 warp_sums;  ///< u32[32]
  i32 rows;       ///< i32[32] of a few tokens' entries
  i32 weights;    ///< float[32] of the same
  i32 barriers;   ///< u64[RingShape::kMaxStages]
  i32 ring;       ///< ring_bytes, 128-byte aligned
  i32 total;

  MOELINK_DEVICE constexpr PrefillScratch(i32 num_experts, i32 ring_bytes)
      : experts(0),
        warp_sums(round_up(num_experts * 4, 16)),
        rows(warp_sums + 32 * 4),
        weights(rows + 32 * 4),
        barriers(weights + 32 * 4),
        ring(round_up(barriers + RingShape::kMaxStages * 8, 128)),
        total(ring + ring_bytes) {}
};

}  // namespace moelink

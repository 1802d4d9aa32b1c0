// Block scratch of the local kernels: where each part starts and how many bytes a launch asks for, written once for the
// host that launches and the kernel that carves. All offsets are in bytes, multiples of 16.
#pragma once

#include "moelink/protocol/local_moe.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

struct DecodeScratch {
  i32 below;    ///< u32[num_experts + 2]: entries of each expert before the block's token; ids out of range; skipped
  i32 others;   ///< u32[num_experts + 2]: all other entries
  i32 codes;    ///< u16[top_k]: counters of the block's token's entries, readable to a multiple of 16 bytes
  i32 rows;     ///< i32[top_k] of the block's token
  i32 weights;  ///< float[top_k] of the block's token
  i32 total;

  MOELINK_DEVICE constexpr explicit DecodeScratch(i32 num_experts)
      : below(0),
        others(round_up((num_experts + 2) * 4, 16)),
        codes(others * 2),
        rows(codes + kMaxTopK * 2),
        weights(rows + kMaxTopK * 4),
        total(weights + kMaxTopK * 4) {}
};

/// How rows pass through the ring of a block (primitives/row_ring.cuh): in chunks; a row's first is followed by the
/// token's scale bytes if bulk copies can carry them.
struct RingShape {
  i32 chunks_per_row = 0;
  i32 chunk_bytes = 0;  ///< of every chunk but a row's last
  i32 stage_bytes = 0;
  i32 stages = 0;

  static constexpr i32 kLargestChunkBytes = 16 << 10;
  static constexpr i32 kLargestBulkScaleBytes = 2 << 10;
  static constexpr i32 kLeastStages = 8;  ///< RowRing needs more than it has chunks draining
  static constexpr i32 kMostStages = 64;
  static constexpr i32 kLeastRingBytes = 32 << 10;

  MOELINK_DEVICE static constexpr i32 bulk_scale_bytes(i32 scale_bytes) {
    return scale_bytes % 16 == 0 && scale_bytes <= kLargestBulkScaleBytes ? scale_bytes : 0;
  }

  /// `ring_bytes`: for all stages, at least kLeastRingBytes. (Kernels compute this before their first load: where the
  /// row is known at compile time and fits a chunk, no division is left but by a constant.)
  MOELINK_DEVICE constexpr RingShape(i64 row_bytes, i32 scale_bytes, i32 ring_bytes) {
    const i32 scales = bulk_scale_bytes(scale_bytes);
    const i32 most_bytes = min_of(ring_bytes / kLeastStages / 128 * 128 - round_up(scales, 128), kLargestChunkBytes);
    if (row_bytes <= most_bytes) {
      chunks_per_row = 1;
      chunk_bytes = static_cast<i32>(row_bytes);
      stage_bytes = static_cast<i32>(round_up(row_bytes + scales, 128L));
      stages = min_of(ring_bytes / static_cast<i32>(round_up(row_bytes + scales, 128L)), kMostStages);
      return;
    }
    const u32 units = static_cast<u32>(row_bytes / 16);
    chunks_per_row = static_cast<i32>(ceil_div(units, static_cast<u32>(max_of(most_bytes, 128)) / 16));
    chunk_bytes = static_cast<i32>(ceil_div(units, static_cast<u32>(chunks_per_row))) * 16;
    stage_bytes = round_up(chunk_bytes + scales, 128);
    stages = min_of(ring_bytes / stage_bytes, kMostStages);
  }

  /// Of a row of `row_bytes`, which may be less than the shape was made for.
  [[nodiscard]] MOELINK_DEVICE constexpr i32 bytes_of_chunk(i64 row_bytes, int chunk) const {
    const i64 rest = row_bytes - static_cast<i64>(chunk) * chunk_bytes;
    return static_cast<i32>(max_of(0L, min_of(rest, static_cast<i64>(chunk_bytes))));
  }
};

struct PrefillScratch {
  // Entries whose rows are found while those of as many others are copied. The first rows are wanted soon; after that
  // the finder runs ahead, so that what is said about neighbouring rows is written at about the same time and meets in
  // the L2: written as the copies get to it, it cost some 7 us at 8192 tokens.
  static constexpr i32 kFirstBatch = 128;
  static constexpr i32 kBatch = 1024;

  i32 experts;    ///< u32[num_experts + 2]: this block's entries of each expert, then the next row of each; ids out of
                  ///< range; skipped
  i32 totals;     ///< u32[num_experts + 2]: all entries of each expert, if every block counts; likewise
  i32 warp_sums;  ///< u32[32]
  i32 rows;       ///< i32[2 * kBatch]
  i32 weights;    ///< float[2 * kBatch]
  i32 barriers;   ///< u64[RingShape::kMostStages]
  i32 ring;       ///< ring_bytes, 128-byte aligned
  i32 total;

  MOELINK_DEVICE constexpr PrefillScratch(i32 num_experts, bool every_block_counts, i32 ring_bytes)
      : experts(0),
        totals(round_up((num_experts + 2) * 4, 16)),
        warp_sums(totals * (every_block_counts ? 2 : 1)),
        rows(warp_sums + 32 * 4),
        weights(rows + 2 * kBatch * 4),
        barriers(weights + 2 * kBatch * 4),
        ring(round_up(barriers + RingShape::kMostStages * 8, 128)),
        total(ring + ring_bytes) {}
};

}  // namespace moelink

// What a block keeps of rows under way (primitives/row_pump.cuh): where each part of its scratch starts, written once
// for the host that launches and the kernel that carves. All offsets are in bytes, multiples of 16.
#pragma once

#include "moelink/protocol/local_scratch.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// One row to be moved. Addresses are multiples of 16, but those of scales.
struct RowJob {
  const u8* row;
  const u8* scales;  ///< null: none; if the spec quantises: `row` is elements that are not yet quantised
  u8* copy;          ///< one more place for the row, its scales behind it; null: none
  i32 slot;          ///< for whoever finds places: the slot that the row belongs to; -1: it has none but `copy`
};

/// Rows that are found together.
struct RowBatchHead {
  u64* flag;  ///< for the finder's raise(), when all copies have been stored
  u64 value;  ///< likewise; 0: nobody is to be told
  i32 num_rows;
  i32 group;  ///< for whoever finds places: whose slots they are
  i32 is_last;
};

struct PumpScratch {
  // Batches are found while rows of earlier ones move. So many of four rows fill a ring of 14 KB rows twice.
  static constexpr i32 kBatches = 8;
  static constexpr i32 kLog2BatchRows = 3;
  static constexpr i32 kBatchRows = 1 << kLog2BatchRows;

  i32 heads;     ///< RowBatchHead[kBatches]
  i32 jobs;      ///< RowJob[kBatches][kBatchRows]
  i32 places;    ///< i32[kBatches][kBatchRows * top_k]
  i32 weights;   ///< float[kBatches][kBatchRows * top_k]
  i32 barriers;  ///< u64[kBatches * 3 + RingShape::kMostStages * 3]
  i32 ring;      ///< ring_bytes, 128-byte aligned
  i32 total;

  MOELINK_DEVICE constexpr PumpScratch(i32 first, i32 top_k, i32 ring_bytes)
      : heads(first),
        jobs(heads + round_up(kBatches * static_cast<i32>(sizeof(RowBatchHead)), 16)),
        places(jobs + kBatches * kBatchRows * static_cast<i32>(sizeof(RowJob))),
        weights(places + kBatches * kBatchRows * top_k * 4),
        barriers(weights + kBatches * kBatchRows * top_k * 4),
        ring(round_up(barriers + (3 * kBatches + 3 * RingShape::kMostStages) * 8, 128)),
        total(ring + ring_bytes) {}
};

}  // namespace moelink

// Rows that are quantised where they lie, in the stages of a pump's ring, by warps that take them in turns. For GPUs;
// on the host rows go from memory to memory (row_moves.cuh).
//
// Ordering: a row is read when its stage is full, and fenced for the bulk copies that follow before the stage is ready.
//
// A quantiser waits for two barriers, because a wait by parity tells a phase from the next one, not from the one after.
// Let row q = r - stages be the one that was in the stage of row r before. That `full` has the parity of r says that r
// is loaded only if q was loaded before; if q is still on its way, the parity matches at once, and q, half loaded,
// would be quantised and called ready. Nothing else orders the two: that a quantiser has finished row r - 8, its last,
// says that this row's load had begun, so that rows up to r - 8 - stages + 4 have been placed (RowPump::kDrain).
// Therefore:
//  - It first waits until q is ready, so loaded. That parity is exact: r - 2 * stages has been placed, as a ring has
//    more than 4 stages, and the stage's next row to become ready after q is r itself. For the first row of a stage the
//    wait is for the phase before the first, and passes.
//  - Then `full` has ended the phase of q, and ends no other than that of r until r has been placed: exact, too.
//  - Rows wait for earlier rows only, so that some row can always go on.
// `ready` has a phase for each row so far only as long as all of them are quantised: such rows must come before others.
#pragma once

#include "moelink/device/primitives/quantize_lanes.cuh"
#include "moelink/device/primitives/row_batch.cuh"
#include "moelink/device/ptx/vector.cuh"
#include "moelink/protocol/local_scratch.hpp"
#if MOELINK_ON_DEVICE
#include "moelink/device/ptx/fence.cuh"
#endif

namespace moelink {

#if MOELINK_ON_DEVICE

/// By one warp: the row of kElements 16-bit elements at `row` becomes one of the format F, from `row` on; its scales go
/// to `scales`, which is behind it. What is written lies below what is still to be read: elements become shorter.
template <QuantFormat F, Element E, i32 kElements, class Exec>
MOELINK_DEVICE void quantize_in_place(const Exec& ex, u8* row, u8* scales, const TensorScale<F>& tensor) {
  constexpr int kAtOnce = 4 / kWideVectors;
  constexpr i32 kUnits = ceil_div(kElements, kLaneElements);
#pragma unroll 1
  for (i32 first = ex.lane(); first < round_up(kUnits, 32); first += 32 * kAtOnce) {
    Vec16 held[kAtOnce][kWideVectors];
    MOELINK_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      MOELINK_UNROLL
      for (int j = 0; j < kWideVectors; ++j) {
        const i32 element = (first + i * 32) * kLaneElements + j * 8;
        held[i][j] = element < kElements ? ld_v4(row + 2 * element) : Vec16{0, 0, 0, 0};
      }
    }
    LaneBlock blocks[kAtOnce];
    MOELINK_UNROLL
    for (int i = 0; i < kAtOnce; ++i) blocks[i] = quantize_lanes<F, E>(ex, held[i], tensor);
    ex.sync_warp();
    MOELINK_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const i32 unit = first + i * 32;
      store_unit<F>(row, scales, unit, blocks[i], kElements - unit * kLaneElements);
    }
  }
}

/// By one warp, number `own` of `kWarps`: of the rows that are to be quantised, every kWarps-th. Until the last batch.
template <int kWarps, class Exec, class S>
MOELINK_DEVICE void quantize_stages(const Exec& ex, S spec, const RowBatches<S>& batches, const PumpBarriers& barriers,
                                    const RingShape& shape, u8* stages, const float* tensor_scale, u32 own) {
  const float scale = tensor_scale == nullptr ? 1.0F : *tensor_scale;
  with_quant_formats(spec, [&](auto format, auto element) {
    constexpr i32 kElements = static_cast<i32>(raw_row_bytes(S{}) / 2);
    const TensorScale<format()> tensor(scale);
    u32 turn = 0;
    StageCursor at;
#pragma unroll 1
    for (u32 number = 0;; ++number) {
      barriers.wait_batch_full(number);
      const RowBatch from = batches.at(number);
      if (from.head->is_last != 0) return;
      const i32 num_rows = from.head->num_rows;
#pragma unroll 1
      for (i32 row = 0; row < num_rows; ++row) {
        if (is_raw(S{}, from.jobs[row])) {
          if (turn == own) {
            u8* staged = stages + at.stage * shape.stage_bytes;
            barriers.wait(barriers.stage_ready(at.stage), at.parity ^ 1);  // q of the head of this file
            barriers.wait(barriers.stage_full(at.stage), at.parity);
            quantize_in_place<format(), element(), kElements>(ex, staged, staged + shape.chunk_bytes, tensor);
            fence_proxy_async();
            ex.sync_warp();
            if (ex.lane() == 0) mbarrier_arrive(barriers.stage_ready(at.stage));
          }
          turn = turn + 1 == kWarps ? 0 : turn + 1;
        }
        at.advance(shape.stages);
      }
      ex.sync_warp();
      if (ex.lane() == 0) mbarrier_arrive(barriers.batch_empty(number));
    }
  });
}

#endif

}  // namespace moelink

// The copies of rows, stored by warps of their own from the stages of a pump's ring in which the rows lie
// (row_pump.cuh): plain stores, since bulk copies to a peer are slow (decision 23). Device only.
//
// Every sender waits for every chunk, whether it has a copy or not, and says when it has left it. So a stage is never
// filled again before each sender has looked, and none takes what a stage held before for its chunk. (One that passed
// by chunks without a copy would do so: SKIPPING in tests/model/pump.pml.)
//
// Ordering: the chunk's barrier acquires what a bulk load brought or a quantiser wrote. The lanes have read it when
// they meet, and one arrives at the stage's barrier (release): the copier, who waits for that, loads over nothing that
// is still to be read. Senders write nothing there, so that no proxy fence is needed. What they store is released to
// the block by the arrival at the batch's barrier, and by the teller, who waits for that, at system scope.
//
// Progress: a sender waits for chunks of batches that have been found, in order, and for nobody else.
#pragma once

#include "moelink/device/primitives/row_batch.cuh"
#include "moelink/device/ptx/vector.cuh"

#if MOELINK_ON_DEVICE

namespace moelink {

/// By kWarps warps, of which this is number `own`: bytes (a multiple of 16) from scratch to global memory.
template <int kWarps, class Exec>
MOELINK_DEVICE void store_from_scratch(const Exec& ex, int own, u8* to, const u8* from, i32 bytes) {
  constexpr int kAtOnce = 8 / kWideVectors;
  constexpr i32 kStep = kWarps * 32 * kWideBytes;
#pragma unroll 1
  for (i32 first = (own * 32 + ex.lane()) * kWideBytes; first < bytes; first += kAtOnce * kStep) {
    Vec16 held[kAtOnce][kWideVectors];
    MOELINK_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      MOELINK_UNROLL
      for (int j = 0; j < kWideVectors; ++j) {
        const i32 at = first + i * kStep + j * 16;
        if (at < bytes) held[i][j] = ld_v4(from + at);
      }
    }
    MOELINK_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const i32 at = first + i * kStep;
      if (at < bytes) st_wide(to + at, bytes - at, held[i]);
    }
  }
}

/// By one warp, number `own` of `kWarps`, which share every chunk. Until the last batch.
template <int kWarps, class Exec, class S>
MOELINK_DEVICE void send_stages(const Exec& ex, S spec, const RowBatches<S>& batches, const PumpBarriers& barriers,
                                const RingShape& shape, const u8* stages, int own) {
  StageCursor at;
#pragma unroll 1
  for (u32 number = 0;; ++number) {
    barriers.wait_batch_full(number);
    const RowBatch from = batches.at(number);
    const bool is_last = from.head->is_last != 0;
    const i32 num_rows = is_last ? 0 : from.head->num_rows;
#pragma unroll 1
    for (i32 row = 0; row < num_rows; ++row) {
      const RowJob& job = from.jobs[row];
      u8* copy = job.copy;
      const bool is_quantized_here = is_raw(spec, job);
      const bool with_scales = has_ring_scales(spec, job);
#pragma unroll 1
      for (int chunk = 0; chunk < shape.chunks_per_row; ++chunk) {
        barriers.wait_chunk(at, is_quantized_here);
        if (copy != nullptr) {
          const u8* stage = stages + at.stage * shape.stage_bytes;
          store_from_scratch<kWarps>(ex, own, copy + static_cast<i64>(chunk) * shape.chunk_bytes, stage,
                                     shape.bytes_of_chunk(spec().row_bytes, chunk));
          if (chunk == 0 && with_scales) {
            store_from_scratch<kWarps>(ex, own, copy + spec().row_bytes, stage + shape.chunk_bytes, spec().scale_bytes);
          }
        }
        ex.sync_warp();
        if (ex.lane() == 0) mbarrier_arrive(barriers.stage_sent(at.stage));
        at.advance(shape.stages);
      }
    }
    ex.sync_warp();
    if (ex.lane() == 0) mbarrier_arrive(barriers.batch_sent(number));
    if (is_last) return;
  }
}

}  // namespace moelink

#endif

// Batches of rows under way in a block: what is found of them, where it stands in scratch, and the barriers through
// which it passes from the warp that finds to those that move (row_pump.cuh).
#pragma once

#include "moelink/protocol/pump_scratch.hpp"
#include "moelink/protocol/quant.hpp"
#if MOELINK_ON_DEVICE
#include "moelink/device/ptx/mbarrier.cuh"
#endif

namespace moelink {

/// Where places are. Addresses and strides of rows are multiples of 16 bytes.
struct RowTargets {
  u8* rows;
  i64 row_stride_bytes;
  u8* row_scales;                       ///< [rows, scale_bytes] dense, or null
  bool streaming;                       ///< host: past the caches
  const float* tensor_scale = nullptr;  ///< quantising to nvfp4: one value, or null: 1
};

/// A batch as its finder sees it, in block scratch.
struct RowBatch {
  RowBatchHead* head;  ///< all but is_last is the finder's to fill
  RowJob* jobs;        ///< [num_rows]
  i32* places;         ///< [num_rows][top_k], -1: none
  float* weights;      ///< likewise
};

/// Bytes of a row as it is read where it comes from, if it is not quantised yet.
template <class S>
MOELINK_DEVICE constexpr i64 raw_row_bytes(S spec) {
  return spec().row_bytes * token_bytes_per_byte(spec().quantize);
}
/// Whether a row is to be quantised on its way.
template <class S>
MOELINK_DEVICE bool is_raw(S spec, const RowJob& job) {
  return spec().quantize != QuantFormat::none && job.scales == nullptr;
}

/// Whether scales pass through the ring behind their rows.
template <class S>
MOELINK_DEVICE constexpr bool ring_carries_scales(S spec) {
  return RingShape::bulk_scale_bytes(spec().scale_bytes) != 0;
}
/// Whether a row in the ring has scales behind it when it leaves.
template <class S>
MOELINK_DEVICE bool has_ring_scales(S spec, const RowJob& job) {
  return ring_carries_scales(spec) && (job.scales != nullptr || is_raw(spec, job));
}

template <class S>
class RowBatches {
 public:
  MOELINK_DEVICE RowBatches(S spec, const PumpScratch& at, u8* scratch)
      : spec_(spec),
        heads_(reinterpret_cast<RowBatchHead*>(scratch + at.heads)),
        jobs_(reinterpret_cast<RowJob*>(scratch + at.jobs)),
        places_(reinterpret_cast<i32*>(scratch + at.places)),
        weights_(reinterpret_cast<float*>(scratch + at.weights)) {}

  /// The batch of that number since the launch began, in a place that numbers kBatches apart share.
  MOELINK_DEVICE RowBatch at(u32 number) const {
    const i32 index = static_cast<i32>(number % PumpScratch::kBatches);
    const i32 first_place = index * PumpScratch::kBatchRows * spec_().top_k;
    return {heads_ + index, jobs_ + index * PumpScratch::kBatchRows, places_ + first_place, weights_ + first_place};
  }

 private:
  S spec_;
  RowBatchHead* heads_;
  RowJob* jobs_;
  i32* places_;
  float* weights_;
};

#if MOELINK_ON_DEVICE

/// The stages of a ring in their turn. Whoever follows the rows has one, and moves it on for each chunk.
struct StageCursor {
  int stage = 0;
  u32 parity = 0;  ///< of the phase that the chunk has in the barriers of its stage

  MOELINK_DEVICE void advance(int stages) {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// Words in scratch. Each has one phase for each batch, or chunk, that it serves; stage_ready for those that are
/// quantised, which come first.
class PumpBarriers {
  static constexpr i32 kBatches = PumpScratch::kBatches;

 public:
  MOELINK_DEVICE explicit PumpBarriers(u8* words) : words_(reinterpret_cast<Mbarrier*>(words)) {}

  /// By one thread. A batch is empty when `num_readers` warps have left it.
  MOELINK_DEVICE void init(int stages, u32 num_senders, u32 num_readers) const {
#pragma unroll 1
    for (u32 i = 0; i < kBatches; ++i) {
      mbarrier_init(batch_full(i), 1);
      mbarrier_init(batch_sent(i), num_senders);
      mbarrier_init(batch_empty(i), num_readers);
    }
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      mbarrier_init(stage_full(i), 1);
      mbarrier_init(stage_ready(i), 1);
      mbarrier_init(stage_sent(i), num_senders);
    }
    fence_mbarrier_init();
  }

  /// A batch has been found.
  MOELINK_DEVICE Mbarrier* batch_full(u32 number) const { return words_ + number % kBatches; }
  /// Its place can be used for another.
  MOELINK_DEVICE Mbarrier* batch_empty(u32 number) const { return words_ + kBatches + number % kBatches; }
  /// All senders have stored what they have of it.
  MOELINK_DEVICE Mbarrier* batch_sent(u32 number) const { return words_ + 2 * kBatches + number % kBatches; }
  /// A stage holds what was loaded.
  MOELINK_DEVICE Mbarrier* stage_full(int stage) const { return words_ + 3 * kBatches + stage; }
  /// What it holds has been quantised.
  MOELINK_DEVICE Mbarrier* stage_ready(int stage) const {
    return words_ + 3 * kBatches + RingShape::kMostStages + stage;
  }
  /// All senders have read what they want of it.
  MOELINK_DEVICE Mbarrier* stage_sent(int stage) const {
    return words_ + 3 * kBatches + 2 * RingShape::kMostStages + stage;
  }

  MOELINK_DEVICE static u32 parity_of(u32 number) { return number / kBatches & 1; }
  MOELINK_DEVICE void wait_batch_full(u32 number) const { wait(batch_full(number), parity_of(number)); }
  MOELINK_DEVICE void wait_batch_sent(u32 number) const { wait(batch_sent(number), parity_of(number)); }
  /// Until a chunk is as it shall leave. By who waits for every chunk in turn: a parity does not tell a phase from the
  /// one after the next.
  MOELINK_DEVICE void wait_chunk(const StageCursor& at, bool is_raw) const {
    wait(is_raw ? stage_ready(at.stage) : stage_full(at.stage), at.parity);
  }

  /// For what this block's other warps, or its own bulk copies, will bring: they wait for nobody without a deadline.
  MOELINK_DEVICE static void wait(Mbarrier* barrier, u32 parity) {
    while (!mbarrier_try_wait_parity(barrier, parity)) {
    }
  }

 private:
  Mbarrier* words_;
};

#endif

}  // namespace moelink

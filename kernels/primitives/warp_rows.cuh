// One warp's rows under way: a ring of stages in block scratch, into which its lanes begin bulk copies, and from which
// it takes them in the same order. Device only; no other warp has a part in it.
//
// Rows may have been written by earlier launches only (else a proxy fence would be missing). Stage reuse: all lanes
// have used what they read of a stage when they meet in done(), and the next copy into it begins behind that: there is
// no load left that the copy could overtake.
#pragma once

#include "moelink/protocol/types.hpp"

#if MOELINK_ON_DEVICE

#include "moelink/device/ptx/bulk_copy.cuh"

namespace moelink {

/// Rows of one sum, of which each lane knows one: those with an index outside [0, num_rows) do not exist.
struct LaneRows {
  i32 index = -1;
  float weight = 1;
  u32 exist = 0;    ///< the lanes whose rows exist: the same in all, as what follows
  u32 to_load = 0;  ///< those of them whose copies have not begun

  /// By the whole warp, once `index` is there.
  MOELINK_DEVICE void arrive(u32 num_rows) {
    exist = __ballot_sync(0xffffffffU, static_cast<u32>(index) < num_rows);
    to_load = exist;
  }
  MOELINK_DEVICE float weight_of(int lane) const { return __shfl_sync(0xffffffffU, weight, lane); }
};

/// Where pieces of rows lie, all at the same place in their row: multiples of 16 bytes.
struct RowPieces {
  const u8* first;  ///< of row 0
  i64 row_stride_bytes;
  u32 bytes;
};

template <class Exec, int kStages, int kStageBytes>
class WarpRows {
 public:
  /// By the whole warp, like all that follows. `full`: kStages barriers; `ring`: kStages * kStageBytes bytes.
  MOELINK_DEVICE WarpRows(const Exec& ex, Mbarrier* full, u8* ring) : ex_(ex), full_(full), ring_(ring) {}

  MOELINK_DEVICE void start() const {
    if (ex_.lane() == 0) {
      MOELINK_NO_UNROLL
      for (int stage = 0; stage < kStages; ++stage) mbarrier_init(full_ + stage, 1);
      fence_mbarrier_init();
    }
    ex_.sync_warp();
  }

  /// Begins to load what fits. Rows are taken as they were loaded: so nothing of a sum before all of the one before it.
  MOELINK_DEVICE void load(LaneRows& rows, const RowPieces& from) {
    if (rows.to_load == 0 || num_free_ == 0) return;
    const u32 mine = 1U << ex_.lane();
    const int number = __popc(rows.to_load & (mine - 1));
    const bool begins = (rows.to_load & mine) != 0 && number < num_free_;
    if (begins) {
      int stage = load_stage_ + number;
      if (stage >= kStages) stage -= kStages;
      mbarrier_arrive_expect_tx(full_ + stage, from.bytes);
      bulk_copy_global_to_shared(ring_ + stage * kStageBytes, from.first + rows.index * from.row_stride_bytes,
                                 from.bytes, full_ + stage);
    }
    const u32 begun = __ballot_sync(0xffffffffU, begins);
    rows.to_load &= ~begun;
    num_free_ -= __popc(begun);
    load_stage_ += __popc(begun);
    if (load_stage_ >= kStages) load_stage_ -= kStages;
  }

  /// The next row, once it is here.
  MOELINK_DEVICE const u8* take() const {
    while (!mbarrier_try_wait_parity(full_ + stage_, parity_)) {
      // This warp's own load is under way: it always ends.
    }
    return ring_ + stage_ * kStageBytes;
  }
  /// What take() gave has been read.
  MOELINK_DEVICE void done() {
    ex_.sync_warp();
    ++num_free_;
    if (++stage_ == kStages) {
      stage_ = 0;
      parity_ ^= 1;
    }
  }

  /// Waits for all that is under way: before the block ends, whatever has happened.
  MOELINK_DEVICE void drain() {
    MOELINK_NO_UNROLL
    while (num_free_ < kStages) {
      (void)take();
      done();
    }
  }

 private:
  const Exec& ex_;
  Mbarrier* full_;
  u8* ring_;
  int num_free_ = kStages;
  int load_stage_ = 0;
  int stage_ = 0;
  u32 parity_ = 0;
};

}  // namespace moelink

#endif

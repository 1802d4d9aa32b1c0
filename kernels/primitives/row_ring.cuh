// Moving many rows, each to several places, in the order of the tokens. On a GPU rows pass through a ring of stages in
// block scratch, in and out by bulk copies that one warp issues. On the host a row is copied as it is placed, past the
// caches if `streaming`.
//
//   RowRing<Exec> ring(rows, shape, barriers, stages, first_token, end_token);
//   ring.start(ex, bytes);   // by one warp: begins to load the first rows
//   ring.fill(ex);           // by the same warp: and as many more as there is room for
//   ring.place(ex, places);  // once per token, in order
//   ring.finish(ex);         // or, after start() alone, ring.abandon(ex)
//
// A stage goes round: free -> (bulk load, completes on its barrier) -> full -> (bulk stores, one per place) -> read by
// all of them -> free. Stage reuse: a lane waits until its stores kDrain chunks ago have read their stage
// (wait_group.read), the warp meets, then lane 0 loads into it. Data only ever passes between bulk copies, so that no
// proxy fence is needed but the one behind the barriers' initialisation.
#pragma once

#include "moelink/protocol/local_scratch.hpp"
#include "moelink/protocol/types.hpp"
#if MOELINK_ON_DEVICE
#include "moelink/device/ptx/bulk_copy.cuh"
#else
#include "moelink/device/primitives/host_rows.hpp"
#endif

namespace moelink {

/// Where rows and their scales come from and go to. Sizes and addresses of rows are multiples of 16 bytes.
struct RowStreams {
  const u8* tokens;
  i64 token_stride_bytes;
  u8* rows;
  i64 row_stride_bytes;
  i64 row_bytes;
  const u8* scales;  ///< null, or scale_bytes a token, a multiple of 16
  i64 scale_stride_bytes;
  u8* row_scales;
  i32 scale_bytes;
  bool streaming;
};

#if MOELINK_ON_DEVICE

template <class Exec>
class RowRing {
  static constexpr int kDrain = 4;  ///< chunks whose stores may still be reading
  static_assert(kDrain < RingShape::kLeastStages, "a stage must be free before it is waited for");

 public:
  /// `barriers`: a word per stage; `stages`: shape.stages * shape.stage_bytes bytes of block scratch.
  MOELINK_DEVICE RowRing(const RowStreams& streams, const RingShape& shape, void* barriers, u8* stages, i64 first_token,
                         i64 end_token)
      : streams_(streams),
        shape_(shape),
        barriers_(static_cast<Mbarrier*>(barriers)),
        stages_(stages),
        first_token_(first_token),
        load_token_(first_token),
        end_token_(end_token) {}

  /// By one warp: begins to load the first rows, about `bytes` of them.
  MOELINK_DEVICE void start(const Exec& ex, i32 bytes) {
#pragma unroll 1
    for (int s = ex.lane(); s < shape_.stages; s += Exec::kWarpSize) mbarrier_init(&barriers_[s], 1);
    fence_mbarrier_init();
    ex.sync_warp();
#pragma unroll 1
    while (filled_ < shape_.stages && filled_ * shape_.stage_bytes < bytes) fill_next(ex);
  }

  /// By the same warp, before place(): begins to load what the ring has room for.
  MOELINK_DEVICE void fill(const Exec& ex) {
#pragma unroll 1
    while (filled_ < shape_.stages) fill_next(ex);
    ex.sync_warp();
  }

  /// By the same warp, instead of place(): waits for what has begun.
  MOELINK_DEVICE void abandon(const Exec&) const {
    const int num_loaded = static_cast<int>(min_of<i64>(filled_, (end_token_ - first_token_) * shape_.chunks_per_row));
#pragma unroll 1
    for (int s = 0; s < num_loaded; ++s) wait_full(s, 0);
  }

  /// By the same warp: the next token's row goes to every places[k] >= 0, k < num_places <= 32 (block scratch).
  MOELINK_DEVICE void place(const Exec& ex, const i32* places, int num_places) {
    const i64 row = ex.lane() < num_places ? places[ex.lane()] : -1;
    u8* to = streams_.rows + row * streams_.row_stride_bytes;
    for (int chunk = 0; chunk < shape_.chunks_per_row; ++chunk) {
      const u8* stage = stages_ + stage_ * shape_.stage_bytes;
      wait_full(stage_, parity_);
      if (row >= 0) {
        const i32 bytes = chunk_bytes(chunk);
        if (bytes > 0) bulk_copy_shared_to_global(to + static_cast<i64>(chunk) * shape_.chunk_bytes, stage, bytes);
        if (chunk == 0 && streams_.scales != nullptr) {
          bulk_copy_shared_to_global(streams_.row_scales + row * streams_.scale_bytes, stage + shape_.chunk_bytes,
                                     streams_.scale_bytes);
        }
      }
      bulk_commit_group();
      if (++stage_ == shape_.stages) {
        stage_ = 0;
        parity_ ^= 1;
      }
      if (++placed_ > kDrain) {
        bulk_wait_group_read<kDrain>();
        ex.sync_warp();
        load_next(ex);
      }
    }
  }

  /// By the same warp, after the last row: what was stored is complete.
  MOELINK_DEVICE void finish(const Exec&) { bulk_wait_group<0>(); }

 private:
  MOELINK_DEVICE void wait_full(int stage, u32 parity) const {
    while (!mbarrier_try_wait_parity(&barriers_[stage], parity)) {
      // This block's own load is under way: it always ends.
    }
  }

  MOELINK_DEVICE i32 chunk_bytes(int chunk) const { return shape_.bytes_of_chunk(streams_.row_bytes, chunk); }

  MOELINK_DEVICE void fill_next(const Exec& ex) {
    load_next(ex);
    ++filled_;
  }

  /// Lane 0 begins to load the next chunk into the stage whose turn it is.
  MOELINK_DEVICE void load_next(const Exec& ex) {
    if (load_token_ >= end_token_) return;
    if (ex.lane() == 0) {
      Mbarrier* barrier = &barriers_[load_stage_];
      u8* stage = stages_ + load_stage_ * shape_.stage_bytes;
      const i32 bytes = chunk_bytes(load_chunk_);
      const bool with_scales = load_chunk_ == 0 && streams_.scales != nullptr;
      mbarrier_arrive_expect_tx(barrier, bytes + (with_scales ? streams_.scale_bytes : 0));
      const u8* token = streams_.tokens + load_token_ * streams_.token_stride_bytes;
      if (bytes > 0)
        bulk_copy_global_to_shared(stage, token + static_cast<i64>(load_chunk_) * shape_.chunk_bytes, bytes, barrier);
      if (with_scales) {
        bulk_copy_global_to_shared(stage + shape_.chunk_bytes,
                                   streams_.scales + load_token_ * streams_.scale_stride_bytes, streams_.scale_bytes,
                                   barrier);
      }
    }
    if (++load_stage_ == shape_.stages) load_stage_ = 0;
    if (++load_chunk_ == shape_.chunks_per_row) {
      load_chunk_ = 0;
      ++load_token_;
    }
  }

  RowStreams streams_;
  RingShape shape_;
  Mbarrier* barriers_;
  u8* stages_;
  i64 first_token_;
  i64 load_token_;
  i64 end_token_;
  int filled_ = 0;  ///< stages that start() and fill() have given something to load, if there was
  int load_chunk_ = 0;
  int load_stage_ = 0;
  int stage_ = 0;
  u32 parity_ = 0;
  int placed_ = 0;
};

#else

template <class Exec>
class RowRing {
 public:
  RowRing(const RowStreams& streams, const RingShape&, void*, u8*, i64 first_token, i64)
      : streams_(streams), token_(first_token) {}

  void start(const Exec&, i32) {}
  void fill(const Exec&) {}
  void abandon(const Exec&) const {}
  void place(const Exec&, const i32* places, int num_places) {
    const u8* token = streams_.tokens + token_ * streams_.token_stride_bytes;
    for (int k = 0; k < num_places; ++k) {
      if (places[k] < 0) continue;
      const i64 row = places[k];
      u8* to = streams_.rows + row * streams_.row_stride_bytes;
      host_copy_row(to, token, streams_.row_bytes, Element::none, 1.0F, streams_.streaming);
      if (streams_.scales == nullptr) continue;
      std::memcpy(streams_.row_scales + row * streams_.scale_bytes,
                  streams_.scales + token_ * streams_.scale_stride_bytes, static_cast<u64>(streams_.scale_bytes));
    }
    ++token_;
  }
  void finish(const Exec&) { host_stream_fence(); }

 private:
  RowStreams streams_;
  i64 token_;
};

#endif

}  // namespace moelink

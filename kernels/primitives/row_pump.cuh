// Moving rows that are found little by little, each to several places: the general form of row_ring.cuh, whose rows are
// known to lie side by side.
//
//   RowPump<Exec, S> pump(spec, targets, at, scratch, ring_bytes);
//   pump.run(ex, finder);  // by the block, until finder.find(ex, batch) is false
//
// `find`, by all lanes of one warp, fills a batch: at most kBatchRows rows, where each is, its places, and a flag that
// tells somebody that the copies have arrived. It may wait. What it found before is moved meanwhile. Flags are raised
// by finder.raise(flag, value), by one thread that need not be of the finder's warp: so it is a const function of the
// finder's inputs.
//
// On a GPU three warps work. The finder runs up to kBatches ahead. The copier has two cursors: one begins bulk loads
// into free stages of a ring, as far as rows have been found; the other takes the stages as they fill and issues a bulk
// store for every place. So the ring does not drain between batches. The teller raises flags: a release lasts until
// all that the SM has stored has crossed the link, microseconds in which a copier would issue nothing.
//
// Ordering:
//  - A batch goes from finder to copier and teller through a pair of barriers in scratch (full, empty), which release
//    and acquire.
//  - Rows may have been written by others under a flag that the finder acquired: its proxy fence comes between that and
//    the batch's barrier, so that the copier's bulk loads see them.
//  - The lane that issued a batch's copies waits until wait_group (not .read) says that they have been written, and
//    tells the teller through a barrier (written). It waits for the latest only if nothing else is left to do, or the
//    next batch with a flag has fewer chunks: else a flag's turn comes when kFlagLag more chunks are under way. What
//    the finder stored before (scales) is ordered by the batch's barrier. The batch is empty when its flag was raised.
//  - Stage reuse is that of row_ring.cuh: kDrain chunks later.
//
// If the spec quantises, rows without scales are elements that are not quantised yet. The finder must find all of them
// before any other, and each must fit a stage (nvlink_prefill_quantizes). More warps then follow the batches, take such
// rows in turns as their stages fill, and quantise each where it lies; the copier waits for them (a barrier for each
// stage, ready) instead of for the load. What they write is fenced for the bulk stores. A batch is empty when they,
// too, have left it.
//
// Rows that are weighted go through the registers of the whole block, batch by batch. On the host a row is moved as it
// is found.
#pragma once

#include "moelink/device/primitives/row_batch.cuh"
#include "moelink/device/primitives/row_moves.cuh"
#include "moelink/device/primitives/scale_copy.cuh"
#include "moelink/device/primitives/stage_quantizer.cuh"
#include "moelink/device/primitives/warp.cuh"
#include "moelink/device/ptx/load_store.cuh"
#if MOELINK_ON_DEVICE
#include "moelink/device/ptx/bulk_copy.cuh"
#include "moelink/device/ptx/fence.cuh"
#endif

namespace moelink {

template <class Exec, class S>
class RowPump {
  static constexpr i32 kBatches = PumpScratch::kBatches;
  static constexpr int kLanes = Exec::kWarpSize;
  static constexpr int kMovers = Exec::kIsDevice ? 3 : 1;  ///< warps: copier, finder, teller (host: one is all)

 public:
  /// `scratch`: the block's, carved by `at`.
  MOELINK_DEVICE RowPump(S spec, const RowTargets& to, const PumpScratch& at, u8* scratch, i32 ring_bytes)
      : spec_(spec),
        to_(to),
        shape_(raw_row_bytes(spec), spec().scale_bytes, ring_bytes),
        batches_(spec, at, scratch),
#if MOELINK_ON_DEVICE
        barriers_(scratch + at.barriers),
#endif
        stages_(scratch + at.ring) {
  }

  /// Warps, from the first, that run() keeps busy to the end. Those behind return from it at once.
  MOELINK_DEVICE static int busy_warps(const Exec& ex, S spec) {
    return weighted(spec) ? ex.num_warps() : kMovers + num_quantizers(ex, spec);
  }

 private:
  static constexpr int kMostQuantizers = 8;  ///< warps: as many rows at once

  MOELINK_DEVICE static int num_quantizers(const Exec& ex, S spec) {
    const bool quantizes = Exec::kIsDevice && spec().quantize != QuantFormat::none;
    return quantizes ? min_of(kMostQuantizers, ex.num_warps() - kMovers) : 0;
  }
  MOELINK_DEVICE static bool weighted(S spec) { return spec().weighted != Element::none; }
  /// Whether scales pass through the ring behind their rows; else the finder's warp copies them.
  MOELINK_DEVICE bool ring_has_scales() const {
    return Exec::kIsDevice && !weighted(spec_) && RingShape::bulk_scale_bytes(spec_().scale_bytes) != 0;
  }

  /// By one warp: the next batch, and its scales to where the ring does not carry them.
  template <class Finder>
  MOELINK_DEVICE bool find(const Exec& ex, Finder& finder, const RowBatch& next) const {
    const bool found = finder.find(ex, next);
    ex.sync_warp();
    if (found && spec_().scale_bytes != 0 && !ring_has_scales()) copy_scales(ex, next);
    return found;
  }

  MOELINK_DEVICE void copy_scales(const Exec& ex, const RowBatch& next) const {
    const ScalePart<Exec, S> scales(spec_);
    const i32 num_rows = next.head->num_rows;
    for (i32 i = ex.lane(); i < num_rows * spec_().top_k; i += kLanes) {
      const RowJob& job = next.jobs[i / spec_().top_k];
      if (next.places[i] >= 0 && job.scales != nullptr) {
        scales.copy(to_.row_scales + static_cast<i64>(next.places[i]) * spec_().scale_bytes, job.scales);
      }
    }
    for (i32 i = ex.lane(); i < num_rows; i += kLanes) {
      const RowJob& job = next.jobs[i];
      if (job.copy != nullptr && job.scales != nullptr) scales.copy(job.copy + spec_().row_bytes, job.scales);
    }
  }

#if MOELINK_ON_DEVICE

  static constexpr u32 kDrain = 4;  ///< chunks whose stores may still be reading
  /// Chunks under way behind those that a flag waits for: as many bytes, whatever the rows. No more than a batch has,
  /// or the flag of the next one would be due first, and all copies be waited for.
  static constexpr u32 kFlagLag = static_cast<u32>(
      min_of<i64>(max_of<i64>((28 << 10) / max_of<i64>(S{}().row_bytes, 1), 2), PumpScratch::kBatchRows));
  static constexpr int kCopyLane = 31;
  static constexpr int kQuantizers =
      S{}().quantize != QuantFormat::none ? min_of(kMostQuantizers, S{}().threads / kLanes - kMovers) : 0;
  static_assert(kDrain < RingShape::kLeastStages, "a stage must be free before it is waited for");

 public:
  template <class Finder>
  MOELINK_DEVICE void run(const Exec& ex, Finder& finder) {
    if constexpr (S{}().weighted != Element::none) {
      run_through_registers(ex, finder);
    } else {
      if (ex.warp() >= kMovers + kQuantizers) return;
      fence_proxy_async();  // the block may have used the memory of the ring for something else
      if (ex.thread() == 0) barriers_.init(shape_.stages, 2 + kQuantizers, kQuantizers != 0);
      ex.sync_first_warps(kMovers + kQuantizers);
      if (ex.warp() == 0) {
        copy_all(ex);
      } else if (ex.warp() == 1) {
        find_all(ex, finder);
      } else if (ex.warp() == 2) {
        tell_all(ex, finder);
      } else {
        quantize_stages<kQuantizers>(ex, spec_, batches_, barriers_, shape_, stages_, to_.tensor_scale,
                                     static_cast<u32>(ex.warp() - kMovers));
      }
    }
  }

 private:
  template <class Finder>
  MOELINK_DEVICE void find_all(const Exec& ex, Finder& finder) const {
#pragma unroll 1
    for (u32 number = 0;; ++number) {
      if (number >= kBatches) PumpBarriers::wait(barriers_.batch_empty(number), (number / kBatches - 1) & 1);
      const RowBatch next = batches_.at(number);
      const bool found = find(ex, finder, next);
      fence_proxy_async();
      if (ex.lane() == 0) next.head->is_last = found ? 0 : 1;
      ex.sync_warp();
      if (ex.lane() == 0) mbarrier_arrive(barriers_.batch_full(number));
      if (!found) return;
    }
  }

  /// Raises the flags of batches that have one, in order.
  template <class Finder>
  MOELINK_DEVICE void tell_all(const Exec& ex, const Finder& finder) const {
    u32 parities = 0;  // of each batch_written: a bit
#pragma unroll 1
    for (u32 number = 0;; ++number) {
      barriers_.wait_batch_full(number);
      const RowBatchHead& head = *batches_.at(number).head;
      if (head.is_last != 0) return;
      if (head.value != 0) {
        const u32 index = number % kBatches;
        PumpBarriers::wait(barriers_.batch_written(number), parities >> index & 1);
        parities ^= 1U << index;
        if (ex.lane() == 0) finder.raise(head.flag, head.value);
      }
      ex.sync_warp();
      if (ex.lane() == 0) mbarrier_arrive(barriers_.batch_empty(number));
    }
  }

  /// Whether a batch has been found, for the whole warp. Does not wait.
  MOELINK_DEVICE bool is_found(const Exec& ex, u32 number) const {
    const bool seen = mbarrier_test_parity(barriers_.batch_full(number), (number / kBatches) & 1);
    return warp_sum(ex, seen ? 1 : 0) == kLanes;
  }

  MOELINK_DEVICE void copy_all(const Exec& ex) {
#pragma unroll 1
    for (u32 number = 0;; ++number) {
      if (!is_found(ex, number)) {
        finish_copies(ex);  // nobody shall wait for copies that wait for nothing else
        barriers_.wait_batch_full(number);
      }
      const RowBatch next = batches_.at(number);
      if (next.head->is_last != 0) break;
      const i32 num_rows = next.head->num_rows;
#pragma unroll 1
      for (i32 row = 0; row < num_rows; ++row) move_row(ex, next, row);
      if (next.head->value != 0) {
        finish_copies(ex);
        has_flag_ = true;
        flag_batch_ = number;
        flag_chunk_ = placed_;
      }
      ex.sync_warp();
      if (ex.lane() == 0) mbarrier_arrive(barriers_.batch_empty(number));
    }
    finish_copies(ex);
    bulk_wait_group<0>();
  }

  MOELINK_DEVICE void move_row(const Exec& ex, const RowBatch& from, i32 row) {
    const i64 place = ex.lane() < spec_().top_k ? from.places[row * spec_().top_k + ex.lane()] : -1;
    u8* to = place >= 0 ? to_.rows + place * to_.row_stride_bytes : nullptr;
    u8* copy = ex.lane() == kCopyLane ? from.jobs[row].copy : nullptr;
    const bool is_quantized_here = is_raw(spec_, from.jobs[row]);
    const bool with_scales = ring_has_scales() && (is_quantized_here || from.jobs[row].scales != nullptr);
#pragma unroll 1
    for (int chunk = 0; chunk < shape_.chunks_per_row; ++chunk) {
      load_ahead(ex);
      const u8* stage = stages_ + stage_ * shape_.stage_bytes;
      if (is_quantized_here) {
        PumpBarriers::wait(barriers_.stage_ready(stage_), ready_parity_ >> stage_ & 1);
        ready_parity_ ^= u64{1} << stage_;
      } else {
        PumpBarriers::wait(barriers_.stage_full(stage_), parity_);
      }
      const i32 bytes = chunk_bytes(chunk);
      const i64 first = static_cast<i64>(chunk) * shape_.chunk_bytes;
      if (bytes > 0) {
        if (to != nullptr) bulk_copy_shared_to_global(to + first, stage, bytes);
        if (copy != nullptr) bulk_copy_shared_to_global(copy + first, stage, bytes);
      }
      if (chunk == 0 && with_scales) {
        const u8* scales = stage + shape_.chunk_bytes;
        if (to != nullptr) {
          bulk_copy_shared_to_global(to_.row_scales + place * spec_().scale_bytes, scales, spec_().scale_bytes);
        }
        if (copy != nullptr) bulk_copy_shared_to_global(copy + spec_().row_bytes, scales, spec_().scale_bytes);
      }
      bulk_commit_group();
      ++placed_;
      if (++stage_ == shape_.stages) {
        stage_ = 0;
        parity_ ^= 1;
      }
      if (has_flag_ && placed_ - flag_chunk_ >= kFlagLag) finish_copies(ex);
      bulk_wait_group_read<kDrain>();
      ex.sync_warp();
    }
    load_ahead(ex);
  }

  MOELINK_DEVICE i32 chunk_bytes(int chunk) const {
    const i64 rest = spec_().row_bytes - static_cast<i64>(chunk) * shape_.chunk_bytes;
    return static_cast<i32>(max_of(0L, min_of(rest, static_cast<i64>(shape_.chunk_bytes))));
  }

  /// Waits for the copies of an earlier batch whose flag has not had its turn, if there is one.
  MOELINK_DEVICE void finish_copies(const Exec& ex) {
    if (!has_flag_) return;
    if (ex.lane() == kCopyLane) {
      if (placed_ - flag_chunk_ >= kFlagLag) {
        bulk_wait_group<kFlagLag>();
      } else {
        bulk_wait_group<0>();
      }
      mbarrier_arrive(barriers_.batch_written(flag_batch_));
    }
    has_flag_ = false;
  }

  /// Begins to load what has been found into what is free.
  MOELINK_DEVICE void load_ahead(const Exec& ex) {
    const u32 end = static_cast<u32>(shape_.stages) + (placed_ > kDrain ? placed_ - kDrain : 0);
#pragma unroll 1
    while (loaded_ != end) {
      if (load_row_ == load_rows_) {
        if (load_ended_ || !is_found(ex, load_number_)) return;
        const RowBatchHead& head = *batches_.at(load_number_).head;
        load_ended_ = head.is_last != 0;
        load_rows_ = load_ended_ ? 0 : head.num_rows;
        load_row_ = 0;
        ++load_number_;
        continue;
      }
      if (ex.lane() == 0) load(batches_.at(load_number_ - 1).jobs[load_row_]);
      ++loaded_;
      if (++load_stage_ == shape_.stages) load_stage_ = 0;
      if (++load_chunk_ == shape_.chunks_per_row) {
        load_chunk_ = 0;
        ++load_row_;
      }
    }
  }

  /// By one lane: one chunk into the stage whose turn it is.
  MOELINK_DEVICE void load(const RowJob& job) const {
    Mbarrier* full = barriers_.stage_full(load_stage_);
    u8* stage = stages_ + load_stage_ * shape_.stage_bytes;
    const i32 bytes = is_raw(spec_, job) ? static_cast<i32>(raw_row_bytes(spec_)) : chunk_bytes(load_chunk_);
    const bool with_scales = load_chunk_ == 0 && ring_has_scales() && job.scales != nullptr;
    mbarrier_arrive_expect_tx(full, static_cast<u32>(bytes + (with_scales ? spec_().scale_bytes : 0)));
    if (bytes > 0) {
      bulk_copy_global_to_shared(stage, job.row + static_cast<i64>(load_chunk_) * shape_.chunk_bytes, bytes, full);
    }
    if (with_scales) {
      bulk_copy_global_to_shared(stage + shape_.chunk_bytes, job.scales, spec_().scale_bytes, full);
    }
  }

  template <class Finder>
  MOELINK_DEVICE void run_through_registers(const Exec& ex, Finder& finder) const {
    const RowBatch next = batches_.at(0);
#pragma unroll 1
    for (;;) {
      if (ex.warp() == 0) {
        const bool found = find(ex, finder, next);
        if (ex.lane() == 0) next.head->is_last = found ? 0 : 1;
      }
      ex.sync_block();
      if (next.head->is_last != 0) return;
      const i32 num_rows = next.head->num_rows;
      for (i32 row = 0; row < num_rows; ++row) move_through_registers(ex, spec_, to_, next, row);
      ex.sync_block();
      if (ex.thread() == 0 && next.head->value != 0) finder.raise(next.head->flag, next.head->value);
    }
  }

  // The copier's cursors, the same in all lanes.
  u32 loaded_ = 0;       ///< chunks whose loads have begun
  u32 load_number_ = 0;  ///< the batch behind the one that is loaded from
  i32 load_row_ = 0;
  i32 load_rows_ = 0;  ///< of that batch
  int load_chunk_ = 0;
  int load_stage_ = 0;
  bool load_ended_ = false;
  u32 placed_ = 0;  ///< chunks whose stores have been issued
  int stage_ = 0;
  u32 parity_ = 0;
  u64 ready_parity_ = 0;   ///< of each stage's ready barrier: a bit
  bool has_flag_ = false;  ///< there is a batch with a flag whose copies may still be under way
  u32 flag_batch_ = 0;     ///< its number
  u32 flag_chunk_ = 0;     ///< the chunk behind its last

#else

 public:
  template <class Finder>
  void run(const Exec& ex, Finder& finder) {
    const RowBatch next = batches_.at(0);
    while (find(ex, finder, next)) {
      for (i32 row = 0; row < next.head->num_rows; ++row) move_on_host(ex, spec_, to_, next, row);
      if (to_.streaming) host_stream_fence();
      if (next.head->value != 0) finder.raise(next.head->flag, next.head->value);
    }
  }

#endif

  S spec_;
  RowTargets to_;
  RingShape shape_;
  RowBatches<S> batches_;
#if MOELINK_ON_DEVICE
  PumpBarriers barriers_;
#endif
  u8* stages_;
};

}  // namespace moelink

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
// On a GPU the warps of a block have roles:
//  - The finder fills batches, up to kBatches ahead.
//  - The copier has two cursors. One begins bulk loads into free stages of a ring, as far as rows have been found; the
//    other takes the stages as they fill and issues a bulk store for every place, which is in this GPU's memory. So the
//    ring does not drain between batches.
//  - The senders store the copies, which are a peer's, from the same stages by plain stores (stage_sender.cuh).
//  - The teller raises flags: a release lasts until all that the SM has stored has crossed the link, microseconds in
//    which a sender would store nothing.
//  - If the spec quantises, rows without scales are elements that are not quantised yet. The finder must find all of
//    them before any other, and each must fit a stage (nvlink_prefill_quantizes). Quantisers take such rows in turns as
//    their stages fill, and quantise each where it lies (stage_quantizer.cuh).
//
// Each follows all rows in the order in which they were found, and meets the others at barriers in scratch, which
// release and acquire. A wait by parity takes the right phase for done only, where whoever waits has waited for each
// phase before it, and is waited for before the one after it:
//
//   barrier      who arrives                      who waits
//   batch_full   finder                           all others
//   batch_sent   every sender                     teller
//   batch_empty  copier, teller, quantisers       finder, before it fills the place again
//   stage_full   copier and its bulk load         copier, senders, quantisers
//   stage_ready  the row's quantiser              copier, senders, the quantiser of the stage's next row
//   stage_sent   every sender                     copier, before it loads the stage again
//
// Ordering:
//  - Rows may have been written by others under a flag that the finder acquired: its proxy fence comes between that and
//    batch_full, so that the copier's bulk loads see them.
//  - A flag says that the batch's copies are there, and nothing of its places. Senders store, batch_sent passes that on
//    to the teller, whose release is at system scope: causality is transitive. What the finder stored (scales) came to
//    the senders by batch_full, and goes the same way.
//  - A stage is loaded again when the bulk stores kDrain chunks ago have read theirs (row_ring.cuh), and the senders
//    have read this one (stage_sent). What quantisers wrote they have fenced for the bulk stores and for that load.
//
// Progress: senders and quantisers wait for chunks that are being loaded, and the teller for senders. The copier waits
// for the chunk that it places next. That one has been loaded: kDrain is less than the stages, and it waits for the
// senders to leave its stage, if nothing else is loaded yet; they need only chunks before it. A batch that is found is
// moved to its end whether or not there will be another. So nobody waits for who waits for him, and of all waits only
// the finder's are for other blocks, and the teller's for a proxy (tests/model/pump.pml has all of this but the
// ordering as a model, which spin explores).
//
// Rows that are weighted go through the registers of the whole block, batch by batch. On the host a row is moved as it
// is found.
#pragma once

#include "moelink/device/primitives/row_batch.cuh"
#include "moelink/device/primitives/row_moves.cuh"
#include "moelink/device/primitives/scale_copy.cuh"
#include "moelink/device/primitives/stage_quantizer.cuh"
#include "moelink/device/primitives/stage_sender.cuh"
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
  static constexpr int kSenders = Exec::kIsDevice ? 2 : 0;            ///< warps; decision 23
  static constexpr int kMovers = Exec::kIsDevice ? 3 + kSenders : 1;  ///< and copier, finder, teller (host: one is all)

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
    return Exec::kIsDevice && !weighted(spec_) && ring_carries_scales(spec_);
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
  static constexpr int kQuantizers =
      S{}().quantize != QuantFormat::none ? min_of(kMostQuantizers, S{}().threads / kLanes - kMovers) : 0;
  static_assert(kDrain < RingShape::kLeastStages, "a stage must be free before it is waited for");
  static_assert(S{}().weighted != Element::none ||
                    S{}().threads / kLanes >= kMovers + (S{}().quantize != QuantFormat::none ? 1 : 0),
                "a warp for each role");

 public:
  template <class Finder>
  MOELINK_DEVICE void run(const Exec& ex, Finder& finder) {
    if constexpr (S{}().weighted != Element::none) {
      run_through_registers(ex, finder);
    } else {
      if (ex.warp() >= kMovers + kQuantizers) return;
      fence_proxy_async();  // the block may have used the memory of the ring for something else
      if (ex.thread() == 0) barriers_.init(shape_.stages, kSenders, 2 + kQuantizers);
      ex.sync_first_warps(kMovers + kQuantizers);
      if (ex.warp() == 0) {
        copy_all(ex);
      } else if (ex.warp() == 1) {
        find_all(ex, finder);
      } else if (ex.warp() == 2) {
        tell_all(ex, finder);
      } else if (ex.warp() < kMovers) {
        send_stages<kSenders>(ex, spec_, batches_, barriers_, shape_, stages_, ex.warp() - (kMovers - kSenders));
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

  /// Raises the flags of batches that have one, in order. The senders leave a batch before it does.
  template <class Finder>
  MOELINK_DEVICE void tell_all(const Exec& ex, const Finder& finder) const {
#pragma unroll 1
    for (u32 number = 0;; ++number) {
      barriers_.wait_batch_sent(number);
      const RowBatchHead& head = *batches_.at(number).head;
      if (head.is_last != 0) return;
      if (ex.lane() == 0 && head.value != 0) finder.raise(head.flag, head.value);
      ex.sync_warp();
      if (ex.lane() == 0) mbarrier_arrive(barriers_.batch_empty(number));
    }
  }

  /// Whether a phase has ended, for the whole warp. Does not wait.
  MOELINK_DEVICE static bool has_ended(const Exec& ex, Mbarrier* barrier, u32 parity) {
    return warp_sum(ex, mbarrier_test_parity(barrier, parity) ? 1 : 0) == kLanes;
  }

  MOELINK_DEVICE void copy_all(const Exec& ex) {
#pragma unroll 1
    for (u32 number = 0;; ++number) {
      barriers_.wait_batch_full(number);
      const RowBatch next = batches_.at(number);
      if (next.head->is_last != 0) break;
      const i32 num_rows = next.head->num_rows;
#pragma unroll 1
      for (i32 row = 0; row < num_rows; ++row) move_row(ex, next, row);
      ex.sync_warp();
      if (ex.lane() == 0) mbarrier_arrive(barriers_.batch_empty(number));
    }
    bulk_wait_group<0>();
  }

  MOELINK_DEVICE void move_row(const Exec& ex, const RowBatch& from, i32 row) {
    const i64 place = ex.lane() < spec_().top_k ? from.places[row * spec_().top_k + ex.lane()] : -1;
    u8* to = to_.rows + place * to_.row_stride_bytes;
    const bool is_quantized_here = is_raw(spec_, from.jobs[row]);
    const bool with_scales = has_ring_scales(spec_, from.jobs[row]);
#pragma unroll 1
    for (int chunk = 0; chunk < shape_.chunks_per_row; ++chunk) {
      load_ahead(ex);
      const u8* stage = stages_ + place_at_.stage * shape_.stage_bytes;
      barriers_.wait_chunk(place_at_, is_quantized_here);
      if (place >= 0) {
        const i32 bytes = shape_.bytes_of_chunk(spec_().row_bytes, chunk);
        if (bytes > 0) bulk_copy_shared_to_global(to + static_cast<i64>(chunk) * shape_.chunk_bytes, stage, bytes);
        if (chunk == 0 && with_scales) {
          bulk_copy_shared_to_global(to_.row_scales + place * spec_().scale_bytes, stage + shape_.chunk_bytes,
                                     spec_().scale_bytes);
        }
      }
      bulk_commit_group();
      ++placed_;
      place_at_.advance(shape_.stages);
      bulk_wait_group_read<kDrain>();
      ex.sync_warp();
    }
    load_ahead(ex);
  }

  /// Begins to load what has been found into what is free: bulk stores and senders have read what was there. It waits
  /// for senders only if the chunk that is placed next has no stage yet.
  MOELINK_DEVICE void load_ahead(const Exec& ex) {
    const u32 end = static_cast<u32>(shape_.stages) + (placed_ > kDrain ? placed_ - kDrain : 0);
#pragma unroll 1
    while (loaded_ != end) {
      if (load_row_ == load_rows_) {
        if (load_ended_ || !has_ended(ex, barriers_.batch_full(load_number_), PumpBarriers::parity_of(load_number_))) {
          return;
        }
        const RowBatchHead& head = *batches_.at(load_number_).head;
        load_ended_ = head.is_last != 0;
        load_rows_ = load_ended_ ? 0 : head.num_rows;
        load_row_ = 0;
        ++load_number_;
        continue;
      }
      Mbarrier* sent = barriers_.stage_sent(load_at_.stage);
      if (loaded_ == placed_) {
        PumpBarriers::wait(sent, load_at_.parity ^ 1);
      } else if (!has_ended(ex, sent, load_at_.parity ^ 1)) {
        return;
      }
      if (ex.lane() == 0) load(batches_.at(load_number_ - 1).jobs[load_row_]);
      ++loaded_;
      load_at_.advance(shape_.stages);
      if (++load_chunk_ == shape_.chunks_per_row) {
        load_chunk_ = 0;
        ++load_row_;
      }
    }
  }

  /// By one lane: one chunk into the stage whose turn it is.
  MOELINK_DEVICE void load(const RowJob& job) const {
    Mbarrier* full = barriers_.stage_full(load_at_.stage);
    u8* stage = stages_ + load_at_.stage * shape_.stage_bytes;
    const i32 bytes = is_raw(spec_, job) ? static_cast<i32>(raw_row_bytes(spec_))
                                         : shape_.bytes_of_chunk(spec_().row_bytes, load_chunk_);
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
  StageCursor load_at_;
  bool load_ended_ = false;
  u32 placed_ = 0;  ///< chunks whose stores have been issued
  StageCursor place_at_;

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

// Tensor-parallel combine of many tokens, two launches. Protocol and reuse argument: docs/tensor-parallel.md,
// "Separate".
//
//  TensorParallelParts: every warp, tile by tile, sums this rank's rows and stores the part, where peers can load it.
//  It waits for nobody.
//  TensorParallelSums: block 0 compares inputs (tensor_parallel_control.cuh). Every other block has a run of the units,
//  the same at every rank.
//  1. It raises `staged`: the launch before has ended; and waits for that of all.
//  2. Pull: it adds its units from every rank's parts in rank order, rounds once, stores.
//     Two-shot: it adds its rank's shard of them, rounds, and stores the sums over all ranks' parts.
//  3. It raises `reduced` and waits for that of all: nobody reads this rank's parts any more. Two-shot: it copies the
//     sums to the output.
//
// Memory: parts and flags in the symmetric buffer; one private epoch per worker.
#pragma once

#include "moelink/device/moe/tensor_parallel_control.cuh"
#include "moelink/device/moe/tensor_parallel_unit_sums.cuh"
#include "moelink/device/sync/peer_flags.cuh"
#include "moelink/protocol/tensor_parallel.hpp"

namespace moelink {

struct TensorParallelParts {
  static constexpr const char* kName = "TensorParallelParts";
  static constexpr const char* kHeader = "moelink/device/moe/tensor_parallel_parts.cuh";
  using Spec = TensorParallelSpec;
  using Args = TensorParallelArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_tp_unit(spec, [&](auto unit) {
      using Unit = decltype(unit);
      const i64 first = static_cast<i64>(ex.block()) * ex.num_warps() + ex.warp();
      TileParts<Unit, kTpPartsTileUnits, Exec, S> parts(ex, spec, args, first);
      const TpUnits units = TpUnits::of<Unit>(spec, args);
      const i64 num_tiles = units.live / units.per_row * ceil_div(units.per_row, static_cast<i64>(kTpPartsTileUnits));
      Vec16* const out =
          args.window.template at<Vec16>(args.window.rank, args.layout.parts.offset_bytes, spec().num_ranks);
      parts.for_each(first, static_cast<i64>(ex.num_blocks()) * ex.num_warps(), num_tiles, 0,
                     [&](i64, i64 token, int in_row, const Unit& part) {
                       const i64 place = token * units.per_row + in_row;
                       MOELINK_UNROLL
                       for (int v = 0; v < Unit::kVectors; ++v) out[place * Unit::kVectors + v] = part.vectors[v];
                     });
    });
  }
};

struct TensorParallelSums {
  static constexpr const char* kName = "TensorParallelSums";
  static constexpr const char* kHeader = "moelink/device/moe/tensor_parallel_parts.cuh";
  using Spec = TensorParallelSpec;
  using Args = TensorParallelArgs;

  static constexpr i32 kScratchBytes = 16;  ///< a word of the block that compares inputs

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    if (ex.block() == 0) return exchange_control(ex, spec, args, static_cast<u32*>(ex.scratch()));
    with_tp_access(spec, [&](auto unit, auto access) {
      run_worker<decltype(unit), typename decltype(access)::Type>(ex, spec, args);
    });
  }

 private:
  template <class Unit, class Access, class Exec, class S>
  MOELINK_DEVICE static void run_worker(const Exec& ex, S spec, const Args& args) {
    const i64 worker = ex.block() - 1;
    const i64 num_workers = ex.num_blocks() - 1;
    u64* const word = args.epochs + TensorParallelEpochs::kTwoShot + worker;
    const u64 epoch = *word + 1;
    raise_peer_flags(ex, spec, args.window, args.layout.staged_flags, worker, epoch);
    const TpUnits units = TpUnits::of<Unit>(spec, args);
    if (wait_for_peer_flags(ex, spec, args.window, args.fault, args.layout.staged_flags, worker, epoch,
                            FaultPhase::tp_staged)) {
      sum_run<Unit, Access>(ex, spec, args, units.live * worker / num_workers, units.live * (worker + 1) / num_workers,
                            epoch);
    }
    ex.sync_block();
    if (ex.thread() == 0) *word = epoch;
  }

  /// Units [begin, end).
  template <class Unit, class Access, class Exec, class S>
  MOELINK_DEVICE static void sum_run(const Exec& ex, S spec, const Args& args, i64 begin, i64 end, u64 epoch) {
    const Access access(spec, args.window);
    const i64 parts = args.layout.parts.offset_bytes;
    const i64 worker = ex.block() - 1;
    const auto store = [&](i64 unit, const TpResult<Unit, S>& result) {
      const i64 per_row = spec().hidden / Unit::kElements;
      const i64 token = unit / per_row;
      result.store(spec, args, token, unit - token * per_row);
    };
    const bool is_two_shot = spec().two_shot;
    const i64 shard = is_two_shot ? begin + tp_shard_begin(end - begin, args.window.rank, spec().num_ranks) : begin;
    const i64 shard_end =
        is_two_shot ? begin + tp_shard_begin(end - begin, args.window.rank + 1, spec().num_ranks) : end;
    access.fence_aliases();
    sum_tp_units<kTpUnitsAtOnce<Unit, S>, Unit>(ex, access, parts, shard, shard_end, [&](i64 unit, const Vec16* sums) {
      const auto result = TpResult<Unit, S>::of(spec, sums);
      is_two_shot ? store_tp_result<Unit>(spec, access, parts, unit, result) : store(unit, result);
    });
    raise_peer_flags(ex, spec, args.window, args.layout.reduced_flags, worker, epoch);
    if (!wait_for_peer_flags(ex, spec, args.window, args.fault, args.layout.reduced_flags, worker, epoch,
                             FaultPhase::tp_reduced) ||
        !is_two_shot) {
      return;
    }
    access.fence_aliases();
    for_each_tp_result<Unit>(ex, spec, args.window, parts, begin, end, store);
  }
};

}  // namespace moelink

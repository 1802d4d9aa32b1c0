// Tensor-parallel combine through staging memory: more tokens than push, in one launch with the combine. Protocol and
// reuse argument: docs/tensor-parallel.md, "Pull" and "Two-shot".
//
//  Block 0 compares inputs (tensor_parallel_control.cuh). In each step every other block has a chunk of the tiles.
//  Pull (one trip):
//  1. It stages the parts of the next step's chunk and raises a flag at every peer: the flight of one step hides behind
//     the sums of another.
//  2. It waits for every rank's flag of this step, adds the chunk from every rank's staging in rank order, rounds once,
//     stores.
//  Two-shot:
//  1. It stages its chunk and raises `staged`,
//  2. waits for `staged` of all, adds its rank's shard of the chunk, rounds it, stores it to all ranks' results, raises
//     `reduced`,
//  3. waits for `reduced` of all and copies the chunk from its results to the output.
//
// Memory: staging and results, flags per worker and rank in the symmetric buffer; one private epoch per worker and
// algorithm.
#pragma once

#include "moelink/device/all_reduce/access.cuh"
#include "moelink/device/moe/tensor_parallel_control.cuh"
#include "moelink/device/moe/tensor_parallel_unit_sums.cuh"
#include "moelink/device/sync/peer_flags.cuh"
#include "moelink/protocol/tensor_parallel.hpp"

namespace moelink {

struct TensorParallelStaged {
  static constexpr const char* kName = "TensorParallelStaged";
  static constexpr const char* kHeader = "moelink/device/moe/tensor_parallel_staged.cuh";
  using Spec = TensorParallelSpec;
  using Args = TensorParallelArgs;

  static constexpr i32 kScratchBytes = 16;  ///< a word of the block that compares inputs

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    if (ex.block() == 0) return exchange_control(ex, spec, args, static_cast<u32*>(ex.scratch()));
    with_tp_access(spec, [&](auto unit, auto access) {
      Worker<decltype(unit), Exec, S, typename decltype(access)::Type>(ex, spec, args).run();
    });
  }

 private:
  template <class Unit, class Exec, class S, class Access>
  class Worker {
    /// Units that a thread sums at once: a chunk of a tile for each warp has two for each.
    static constexpr int kAtOnce = min_of(kTpUnitsAtOnce<Unit, S>, 2);

   public:
    MOELINK_DEVICE Worker(const Exec& ex, S spec, const Args& args)
        : ex_(ex),
          spec_(spec),
          args_(args),
          parts_(ex, spec, args, first_tile_of_step(0) + ex.warp()),
          access_(spec, args.window),
          units_(TpUnits::of<Unit>(spec, args)) {}

    MOELINK_DEVICE void run() {
      const i64 first = spec_().two_shot ? TensorParallelEpochs::kTwoShot : TensorParallelEpochs::kPull;
      u64* const word = args_.epochs + first + worker();
      epoch_ = *word;
      // A call's steps follow from the tokens that there are, which all ranks agree on.
      num_steps_ = ceil_div(live_tiles(), args_.chunk_tiles * num_workers());
      spec_().two_shot ? run_two_shot() : run_pull();
      ex_.sync_block();
      if (ex_.thread() == 0) *word = epoch_;
    }

   private:
    /// Tiles [first, first + count) of a step; empty past the live ones.
    struct Tiles {
      i64 first;
      i64 count;
      /// Places for units, also behind the last of a row.
      [[nodiscard]] MOELINK_DEVICE i64 num_places() const { return count * kTpTileUnits; }
    };

    MOELINK_DEVICE i64 worker() const { return ex_.block() - 1; }
    MOELINK_DEVICE i64 num_workers() const { return ex_.num_blocks() - 1; }
    MOELINK_DEVICE int num_ranks() const { return spec_().num_ranks; }
    MOELINK_DEVICE i64 tiles_per_row() const {
      return ceil_div(spec_().hidden / Unit::kElements, static_cast<i64>(kTpTileUnits));
    }
    MOELINK_DEVICE i64 live_tiles() const { return units_.live / units_.per_row * tiles_per_row(); }

    MOELINK_DEVICE i64 first_tile_of_step(i64 step) const {
      return (step * num_workers() + worker()) * args_.chunk_tiles;
    }
    MOELINK_DEVICE Tiles tiles_of_step(i64 step) const {
      const i64 first = first_tile_of_step(step);
      return {first, max_of(i64{0}, min_of(args_.chunk_tiles, live_tiles() - first))};
    }
    MOELINK_DEVICE i64 staging_of(i64 slot) const {
      return args_.layout.staging.offset_bytes + (slot * args_.layout.num_workers + worker()) * args_.layout.slot_bytes;
    }
    MOELINK_DEVICE i64 results() const {
      return args_.layout.results.offset_bytes + worker() * args_.layout.slot_bytes;
    }

    MOELINK_DEVICE void run_pull() {
      const u64 before = epoch_;  // step s has epoch before + 1 + s
      for (i64 step = -1; step < num_steps_; ++step) {
        if (step + 1 < num_steps_) {
          ++epoch_;
          stage(step + 1, staging_of(static_cast<i64>(epoch_ % kTpPullSlots)));
          raise_peer_flags(ex_, spec_, args_.window, args_.layout.pull_flags, worker(), epoch_);
        }
        if (step < 0) continue;
        const u64 epoch = before + 1 + static_cast<u64>(step);
        if (!wait_for_peer_flags(ex_, spec_, args_.window, args_.fault, args_.layout.pull_flags, worker(), epoch,
                                 FaultPhase::tp_pull)) {
          return;
        }
        access_.fence_aliases();
        const Tiles tiles = tiles_of_step(step);
        sum_tp_units<kAtOnce, Unit>(ex_, access_, staging_of(static_cast<i64>(epoch % kTpPullSlots)), 0,
                                    tiles.num_places(), [&](i64 place, const Vec16* sums) {
                                      with_unit_at(tiles, place, [&](i64 token, i64 in_row) {
                                        TpResult<Unit, S>::of(spec_, sums).store(spec_, args_, token, in_row);
                                      });
                                    });
      }
    }

    MOELINK_DEVICE void run_two_shot() {
      for (i64 step = 0; step < num_steps_; ++step) {
        const u64 epoch = ++epoch_;
        const Tiles tiles = tiles_of_step(step);
        stage(step, staging_of(0));
        raise_peer_flags(ex_, spec_, args_.window, args_.layout.staged_flags, worker(), epoch);
        if (!wait_for_peer_flags(ex_, spec_, args_.window, args_.fault, args_.layout.staged_flags, worker(), epoch,
                                 FaultPhase::tp_staged)) {
          return;
        }
        access_.fence_aliases();
        sum_tp_units<kAtOnce, Unit>(
            ex_, access_, staging_of(0), tp_shard_begin(tiles.num_places(), args_.window.rank, num_ranks()),
            tp_shard_begin(tiles.num_places(), args_.window.rank + 1, num_ranks()), [&](i64 place, const Vec16* sums) {
              store_tp_result<Unit>(spec_, access_, results(), place, TpResult<Unit, S>::of(spec_, sums));
            });
        raise_peer_flags(ex_, spec_, args_.window, args_.layout.reduced_flags, worker(), epoch);
        if (!wait_for_peer_flags(ex_, spec_, args_.window, args_.fault, args_.layout.reduced_flags, worker(), epoch,
                                 FaultPhase::tp_reduced)) {
          return;
        }
        access_.fence_aliases();
        for_each_tp_result<Unit>(
            ex_, spec_, args_.window, results(), 0, tiles.num_places(),
            [&](i64 place, const TpResult<Unit, S>& result) {
              with_unit_at(tiles, place, [&](i64 token, i64 in_row) { result.store(spec_, args_, token, in_row); });
            });
      }
    }

    /// The parts of a step's chunk, into this rank's staging.
    MOELINK_DEVICE void stage(i64 step, i64 staging) {
      const Tiles tiles = tiles_of_step(step);
      Vec16* const out = args_.window.template at<Vec16>(args_.window.rank, staging, num_ranks());
      parts_.for_each(tiles.first + ex_.warp(), ex_.num_warps(), tiles.first + tiles.count,
                      first_tile_of_step(step + 1) + ex_.warp(), [&](i64 tile, i64, int in_row, const Unit& part) {
                        const i64 place = (tile - tiles.first) * kTpTileUnits + in_row % kTpTileUnits;
                        MOELINK_UNROLL
                        for (int v = 0; v < Unit::kVectors; ++v) out[place * Unit::kVectors + v] = part.vectors[v];
                      });
    }

    /// body(token, unit of its row), if a unit has this place.
    template <class Body>
    MOELINK_DEVICE void with_unit_at(const Tiles& tiles, i64 place, Body&& body) const {
      const i64 tile = tiles.first + place / kTpTileUnits;
      const i64 token = tile / tiles_per_row();
      const i64 in_row = (tile - token * tiles_per_row()) * kTpTileUnits + place % kTpTileUnits;
      if (in_row < units_.per_row) body(token, in_row);
    }

    const Exec& ex_;
    S spec_;
    const Args& args_;
    TileParts<Unit, kTpTileUnits, Exec, S> parts_;
    Access access_;
    TpUnits units_;
    u64 epoch_ = 0;
    i64 num_steps_ = 0;
  };
};

}  // namespace moelink

// Tensor-parallel combine through staging memory: more tokens than push, in one launch with the combine or behind a
// launch of it. Protocol and reuse argument: docs/tensor-parallel.md, "Pull" and "Two-shot".
//
//  Block 0 compares inputs (tensor_parallel_control.cuh). In each step every other block has a chunk of the units.
//  Pull (one trip):
//  1. It stages the fp32 partial sums of the next step's chunk and raises a flag at every peer: the flight of one step
//     hides behind the sums of another.
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
#include "moelink/device/all_reduce/chunk.cuh"
#include "moelink/device/moe/tensor_parallel_control.cuh"
#include "moelink/device/primitives/tensor_parallel_partial.cuh"
#include "moelink/device/sync/peer_flags.cuh"
#include "moelink/protocol/tensor_parallel.hpp"

namespace moelink {

/// Units a thread sums at once: as many as registers allow, of every rank.
template <class S>
inline constexpr int kUnitsAtOnce = 1;
template <TensorParallelSpec S>
inline constexpr int kUnitsAtOnce<Static<S>> = S.num_ranks <= 2 ? 2 : 1;

struct TensorParallelStaged {
  static constexpr const char* kName = "TensorParallelStaged";
  static constexpr const char* kHeader = "moelink/device/moe/tensor_parallel_staged.cuh";
  using Spec = TensorParallelSpec;
  using Args = TensorParallelArgs;

  static constexpr i32 kScratchBytes = 16;  ///< a word of the block that compares inputs

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    if (ex.block() == 0) return exchange_control(ex, spec, args, static_cast<u32*>(ex.scratch()));
    with_tp_unit(spec, [&](auto unit) {
#if MOELINK_ON_DEVICE
      if constexpr (S{}().multicast) {
        Worker<unit(), Exec, S, MulticastAccess<Element::float32, S>>(ex, spec, args).run();
        return;
      }
#endif
      Worker<unit(), Exec, S, UnicastAccess<Element::float32, S>>(ex, spec, args).run();
    });
  }

 private:
  template <int kUnit, class Exec, class S, class Access>
  class Worker {
    static constexpr int kVectors = kUnit / 4;  ///< of a unit's fp32 sums

   public:
    MOELINK_DEVICE Worker(const Exec& ex, S spec, const Args& args)
        : ex_(ex), spec_(spec), args_(args), access_(spec, args.window), units_(TpUnits::of<kUnit>(spec, args)) {}

    MOELINK_DEVICE void run() {
      const i64 first = spec_().two_shot ? TensorParallelEpochs::kTwoShot : TensorParallelEpochs::kPull;
      u64* const word = args_.epochs + first + worker();
      epoch_ = *word;
      // A call's steps follow from the tokens that there are, which all ranks agree on.
      num_steps_ = ceil_div(units_.live, args_.chunk_units * (ex_.num_blocks() - 1));
      spec_().two_shot ? run_two_shot() : run_pull();
      ex_.sync_block();
      if (ex_.thread() == 0) *word = epoch_;
    }

   private:
    MOELINK_DEVICE i64 worker() const { return ex_.block() - 1; }
    MOELINK_DEVICE int num_ranks() const { return spec_().num_ranks; }

    MOELINK_DEVICE Chunk chunk_of_step(i64 step) const {
      const i64 first = (step * (ex_.num_blocks() - 1) + worker()) * args_.chunk_units;
      return {first, max_of(i64{0}, min_of(args_.chunk_units, units_.live - first))};
    }
    MOELINK_DEVICE i64 staging_of(i64 slot) const {
      return args_.layout.staging.offset_bytes + (slot * args_.layout.num_workers + worker()) * kTpSlotBytes;
    }
    MOELINK_DEVICE i64 results() const { return args_.layout.results.offset_bytes + worker() * kTpSlotBytes; }

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
        const Chunk chunk = chunk_of_step(step);
        sum_units(0, chunk.num_vectors, staging_of(static_cast<i64>(epoch % kTpPullSlots)),
                  [&](i64 unit, const RoundedUnit<kUnit, S>& rounded) {
                    store_tp_output<kUnit>(spec_, args_, units_, chunk.first_vector + unit, rounded);
                  });
      }
    }

    MOELINK_DEVICE void run_two_shot() {
      for (i64 step = 0; step < num_steps_; ++step) {
        const u64 epoch = ++epoch_;
        const Chunk chunk = chunk_of_step(step);
        stage(step, staging_of(0));
        raise_peer_flags(ex_, spec_, args_.window, args_.layout.staged_flags, worker(), epoch);
        if (!wait_for_peer_flags(ex_, spec_, args_.window, args_.fault, args_.layout.staged_flags, worker(), epoch,
                                 FaultPhase::tp_staged)) {
          return;
        }
        access_.fence_aliases();
        sum_units(shard_begin(chunk, args_.window.rank, num_ranks()),
                  shard_begin(chunk, args_.window.rank + 1, num_ranks()), staging_of(0),
                  [&](i64 unit, const RoundedUnit<kUnit, S>& rounded) { store_all(unit, rounded); });
        raise_peer_flags(ex_, spec_, args_.window, args_.layout.reduced_flags, worker(), epoch);
        if (!wait_for_peer_flags(ex_, spec_, args_.window, args_.fault, args_.layout.reduced_flags, worker(), epoch,
                                 FaultPhase::tp_reduced)) {
          return;
        }
        access_.fence_aliases();
        copy_results(chunk);
      }
    }

    /// The partial sums of a step's chunk, into this rank's staging.
    MOELINK_DEVICE void stage(i64 step, i64 staging) const {
      const Chunk chunk = chunk_of_step(step);
      Vec16* const out = args_.window.template at<Vec16>(args_.window.rank, staging, num_ranks());
      for_each_partial<kUnit>(ex_, spec_, args_, units_, chunk.first_vector, static_cast<i32>(chunk.num_vectors),
                              [&](i32 i, const float* values) {
                                MOELINK_UNROLL
                                for (int v = 0; v < kVectors; ++v) {
                                  const float* four = values + 4 * v;
                                  out[i * kVectors + v] = Vec16{float_bits(four[0]), float_bits(four[1]),
                                                                float_bits(four[2]), float_bits(four[3])};
                                }
                              });
    }

    /// body(unit, rounded) for the units [begin, end) of the chunk at `staging`, summed over the ranks.
    template <class Body>
    MOELINK_DEVICE void sum_units(i64 begin, i64 end, i64 staging, const Body& body) const {
      for_each_batch<kUnitsAtOnce<S>>(ex_, begin, end, [&](auto batch, i64 first, i64 stride) {
        Vec16 sums[batch()][kVectors];
        MOELINK_UNROLL
        for (int j = 0; j < batch(); ++j) {
          access_.load_reduce(BatchSize<kVectors>{}, staging, (first + j * stride) * kVectors, 1, sums[j]);
        }
        MOELINK_UNROLL
        for (int j = 0; j < batch(); ++j) {
          float values[kUnit];
          MOELINK_UNROLL
          for (int v = 0; v < kVectors; ++v) {
            values[4 * v] = float_from_bits(sums[j][v].x);
            values[4 * v + 1] = float_from_bits(sums[j][v].y);
            values[4 * v + 2] = float_from_bits(sums[j][v].z);
            values[4 * v + 3] = float_from_bits(sums[j][v].w);
          }
          body(first + j * stride, RoundedUnit<kUnit, S>(spec_, values));
        }
      });
    }

    MOELINK_DEVICE int result_vectors() const { return max_of(kUnit * bytes_of(spec_().output) / 16, 1); }

    MOELINK_DEVICE void store_all(i64 unit, const RoundedUnit<kUnit, S>& rounded) const {
      Vec16 vectors[kVectors];
      rounded.store(reinterpret_cast<u8*>(vectors));
      for (int v = 0; v < result_vectors(); ++v) {
        access_.store_all(results(), unit * result_vectors() + v, vectors[v]);
      }
    }

    MOELINK_DEVICE void copy_results(const Chunk& chunk) const {
      const i64 per_row = spec_().hidden / kUnit;
      const int vectors = result_vectors();
      const Vec16* in = args_.window.template at<const Vec16>(args_.window.rank, results(), num_ranks());
      for_each_batch<2>(ex_, 0, chunk.num_vectors * vectors, [&](auto batch, i64 first, i64 stride) {
        Vec16 values[batch()];
        MOELINK_UNROLL
        for (int j = 0; j < batch(); ++j) values[j] = in[first + j * stride];
        MOELINK_UNROLL
        for (int j = 0; j < batch(); ++j) {
          const i64 vector = chunk.first_vector * vectors + first + j * stride;
          const i64 token = vector / (per_row * vectors);
          st_v4(tp_output_row(args_, token) + (vector - token * per_row * vectors) * 16, values[j]);
        }
      });
    }

    const Exec& ex_;
    S spec_;
    const Args& args_;
    Access access_;
    TpUnits units_;
    u64 epoch_ = 0;
    i64 num_steps_ = 0;
  };
};

}  // namespace moelink

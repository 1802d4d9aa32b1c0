// All-reduce by pulling: middle sizes, one trip; and all larger ones of two ranks, for whom two shots would move no
// less. Protocol and reuse argument: docs/all-reduce.md, "Pull".
//
//   In each step a block
//   1. copies its chunk of the next step into the slot of that step's epoch and signals: its flight is hidden behind 2,
//   2. waits for every rank's signal of this step, adds the chunk from every rank's staging in rank order, stores the
//      sum.
//
// Memory: staging [kPullSlots][kMaxStagedBlocks][slot_bytes], flags [kMaxStagedBlocks][num_ranks] in the symmetric
// buffer; one private epoch per block.
#pragma once

#include "moelink/device/all_reduce/access.cuh"
#include "moelink/device/all_reduce/chunk.cuh"
#include "moelink/device/all_reduce/signals.cuh"
#include "moelink/device/exec/spec.cuh"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {

struct AllReducePull {
  static constexpr const char* kName = "AllReducePull";
  static constexpr const char* kHeader = "moelink/device/all_reduce/pull.cuh";
  using Spec = AllReduceSpec;
  using Args = AllReduceKernelArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) { run_typed<element()>(ex, spec, args); });
  }

 private:
  template <Element E, class Exec, class S>
  MOELINK_DEVICE static void run_typed(const Exec& ex, S spec, const Args& args) {
    const AllReduceLayout layout = AllReduceLayout::of(spec());
    const UnicastAccess<E, S> access(spec, args.window);
    const Message<const u8> input(static_cast<const u8*>(args.input), args.num_elements, E);
    const Message<u8> output(static_cast<u8*>(args.output), args.num_elements, E);
    const i64 steps = num_steps(ex, args, input.num_vectors());
    BlockEpoch epochs(ex, args, AllReduceEpochs::kPull);

    const auto staging_of = [&](u64 epoch) {
      const i64 slot = static_cast<i64>(epoch % kPullSlots) * kMaxStagedBlocks + ex.block();
      return layout.pull_staging.offset_bytes + slot * spec().slot_bytes;
    };
    const auto stage = [&](i64 step, u64 epoch) {
      stage_chunk(ex, input, chunk_of(ex, args, input.num_vectors(), step),
                  args.window.template at<Vec16>(args.window.rank, staging_of(epoch), spec().num_ranks));
      signal_ranks(ex, spec, args, layout.pull_flags, {epoch, step == 0});
    };

    u64 epoch = epochs.advance();
    stage(0, epoch);
    for (i64 step = 0; step < steps; ++step) {
      if (step + 1 < steps) {
        stage(step + 1, epochs.advance());
      }
      if (!wait_for_ranks(ex, spec, args, layout.pull_flags, {epoch, step == 0}, FaultPhase::all_reduce_pull)) {
        break;
      }
      const Chunk chunk = chunk_of(ex, args, input.num_vectors(), step);
      const i64 staging = staging_of(epoch++);
      for_each_batch<kRankBatch<S>>(ex, 0, chunk.num_vectors, [&](auto batch, i64 first, i64 stride) {
        Vec16 sums[batch()];
        access.load_reduce(batch, staging, first, stride, sums);
        MOELINK_UNROLL
        for (int j = 0; j < batch(); ++j) {
          output.store(chunk.first_vector + first + j * stride, sums[j]);
        }
      });
    }
    epochs.keep();
  }
};

}  // namespace moelink

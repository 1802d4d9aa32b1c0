// All-reduce in two shots: large messages, and NVLS. Protocol and reuse argument: docs/all-reduce.md, "Two-shot".
//
//   In each step a block
//   1. copies its chunk of the message into staging and signals `staged`,
//   2. waits for `staged` of all, reduces its shard of the chunk, stores it to all ranks' results, signals `reduced`,
//   3. waits for `reduced` of all and copies the chunk from its results to the output.
//
// Memory: staging and results [kMaxStagedBlocks][slot_bytes], two flags per block and rank in the symmetric buffer;
// one private epoch per block.
#pragma once

#include "moelink/device/all_reduce/access.cuh"
#include "moelink/device/all_reduce/chunk.cuh"
#include "moelink/device/all_reduce/signals.cuh"
#include "moelink/device/exec/spec.cuh"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {

struct AllReduceTwoShot {
  static constexpr const char* kName = "AllReduceTwoShot";
  static constexpr const char* kHeader = "moelink/device/all_reduce/two_shot.cuh";
  using Spec = AllReduceSpec;
  using Args = AllReduceKernelArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) {
#if MOELINK_ON_DEVICE
      if constexpr (S{}().multicast) {
        run_through<element()>(ex, spec, args, MulticastAccess<element(), S>(spec, args.window));
        return;
      }
#endif
      run_through<element()>(ex, spec, args, UnicastAccess<element(), S>(spec, args.window));
    });
  }

 private:
  template <Element E, class Exec, class S, class Access>
  MOELINK_DEVICE static void run_through(const Exec& ex, S spec, const Args& args, const Access& access) {
    const AllReduceLayout layout = AllReduceLayout::of(spec());
    const i64 slot_bytes = static_cast<i64>(ex.block()) * spec().slot_bytes;
    const i64 staging = layout.two_shot_staging.offset_bytes + slot_bytes;
    const i64 results = layout.two_shot_results.offset_bytes + slot_bytes;
    const BlockEpochs epochs(ex, args, AllReduceEpochs::kTwoShot);
    const Message<const u8> input(static_cast<const u8*>(args.input), args.num_elements, E);
    const Message<u8> output(static_cast<u8*>(args.output), args.num_elements, E);

    for (i64 step = 0; step < args.num_steps; ++step) {
      const Step now = epochs.step(step);
      const Chunk chunk = chunk_of(ex, args, input.num_vectors(), step);
      stage_chunk(ex, input, chunk, args.window.template at<Vec16>(args.window.rank, staging, spec().num_ranks));
      signal_ranks(ex, spec, args, layout.staged_flags, now);

      if (!wait_for_ranks(ex, spec, args, layout.staged_flags, now, FaultPhase::all_reduce_staged)) {
        break;
      }
      access.fence_aliases();
      reduce_shard(ex, spec, args, access, chunk, staging, results);
      signal_ranks(ex, spec, args, layout.reduced_flags, now);

      if (!wait_for_ranks(ex, spec, args, layout.reduced_flags, now, FaultPhase::all_reduce_reduced)) {
        break;
      }
      access.fence_aliases();
      unstage_chunk(ex, args.window.template at<const Vec16>(args.window.rank, results, spec().num_ranks), chunk,
                    output);
    }
    epochs.keep(args.num_steps);
  }

  template <class Exec, class S, class Access>
  MOELINK_DEVICE static void reduce_shard(const Exec& ex, S spec, const Args& args, const Access& access,
                                          const Chunk& chunk, i64 staging, i64 results) {
    const i64 begin = shard_begin(chunk, args.window.rank, spec().num_ranks);
    const i64 end = shard_begin(chunk, args.window.rank + 1, spec().num_ranks);
    for_each_batch<kRankBatch<S>>(ex, begin, end, [&](auto batch, i64 first, i64 stride) {
      Vec16 sums[batch()];
      access.load_reduce(batch, staging, first, stride, sums);
      MOELINK_UNROLL
      for (int j = 0; j < batch(); ++j) {
        access.store_all(results, first + j * stride, sums[j]);
      }
    });
  }
};

}  // namespace moelink

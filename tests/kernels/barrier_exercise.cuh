// Test kernel: blocks write, meet, and read what the others wrote, round after round, with random delays.
#pragma once

#include "moelink/device/ptx/atomics.cuh"
#include "moelink/device/sync/grid_barrier.cuh"

namespace moelink::test {

struct BarrierExercise {
  static constexpr const char* kName = "BarrierExercise";
  static constexpr const char* kHeader = "moelink/test/barrier_exercise.cuh";

  struct Spec {
    i32 threads = 0;
    constexpr auto fields(auto&& visit) const { return visit(threads); }
  };

  struct Args {
    GridBarrierWord* word = nullptr;
    u64* values = nullptr;      ///< [blocks, threads]: plain memory, ordered by the barrier alone
    u64* num_wrong = nullptr;   ///< values that were not what the other block wrote in this round
    u64* num_failed = nullptr;  ///< blocks whose barrier reported a fault
    u64 first_stamp = 0;        ///< what blocks write, counting up; differs from launch to launch
    i32 rounds = 0;
    i32 absent_block = 0;  ///< does not come; -1: all come
    FaultContext fault;
  };

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S, const Args& args) {
    if (ex.block() == args.absent_block) {
      return;
    }
    u64 random = args.first_stamp * 2654435761u + static_cast<u64>(ex.block()) + 1;
    for (i32 round = 0; round < args.rounds; ++round) {
      const u64 stamp = args.first_stamp + static_cast<u64>(round);
      delay(random);
      args.values[ex.block() * ex.num_threads() + ex.thread()] = stamp;
      if (!grid_barrier(ex, args.word, args.fault)) {
        return fail(ex, args);
      }
      for (int block = 0; block < ex.num_blocks(); ++block) {
        // Another thread's word of each block: so that the block barriers matter too.
        const int thread = (ex.thread() + block) % ex.num_threads();
        if (args.values[block * ex.num_threads() + thread] != stamp) {
          red_add_relaxed_gpu(args.num_wrong, u64{1});
        }
      }
      if (!grid_barrier(ex, args.word, args.fault)) {
        return fail(ex, args);
      }
    }
  }

 private:
  static MOELINK_DEVICE void delay(u64& random) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    if (random >> 61 != 0) {
      return;
    }
    const u64 until_ns = clock_ns() + (random >> 45) % 4000;
    for (u32 polls = 0; clock_ns() < until_ns; ++polls) {
      pause_between_polls(polls);
    }
  }

  template <class Exec>
  static MOELINK_DEVICE void fail(const Exec& ex, const Args& args) {
    if (ex.thread() == 0) {
      red_add_relaxed_gpu(args.num_failed, u64{1});
    }
  }
};

}  // namespace moelink::test

// Test kernel: rows travel through shared memory by bulk copies, reversed on the way by ordinary accesses, and a flag
// tells another block that they have arrived. GPUs only; on the host it compiles to nothing.
#pragma once

#include "moelink/device/ptx/bulk_copy.cuh"
#include "moelink/device/ptx/fence.cuh"
#include "moelink/device/ptx/load_store.cuh"
#include "moelink/device/sync/wait_until.cuh"

namespace moelink::test {

struct BulkRoundTrip {
  static constexpr const char* kName = "BulkRoundTrip";
  static constexpr const char* kHeader = "moelink/test/bulk_round_trip.cuh";

  struct Spec {
    i32 threads = 0;
    i32 words = 0;  ///< of a row, a multiple of 4
    constexpr auto fields(auto&& visit) const { return visit(threads, words); }
  };

  struct Args {
    const u32* input = nullptr;  ///< [rows, words]
    u32* middle = nullptr;       ///< [rows, words], written by bulk copies of block 0
    u32* output = nullptr;       ///< [rows, words], written by block 1 from middle
    u64* flag = nullptr;         ///< rows that are complete in middle
    u64* num_lost = nullptr;     ///< waits that failed
    i32 rows = 0;
    FaultContext fault;
  };

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
#if MOELINK_ON_DEVICE
    if (ex.block() == 0) {
      send(ex, spec, args);
    } else if (ex.block() == 1) {
      receive(ex, spec, args);
    }
#else
    (void)ex, (void)spec, (void)args;
#endif
  }

 private:
#if MOELINK_ON_DEVICE
  template <class Exec, class S>
  static MOELINK_DEVICE void send(const Exec& ex, S spec, const Args& args) {
    constexpr u32 kBytes = spec().words * 4;
    u32* row = static_cast<u32*>(ex.scratch());
    Mbarrier* barrier = reinterpret_cast<Mbarrier*>(static_cast<u8*>(ex.scratch()) + kBytes);
    if (ex.thread() == 0) {
      mbarrier_init(barrier, 1);
      fence_mbarrier_init();
    }
    ex.sync_block();
    for (int r = 0; r < args.rows; ++r) {
      if (ex.thread() == 0) {
        mbarrier_arrive_expect_tx(barrier, kBytes);
        bulk_copy_global_to_shared(row, args.input + static_cast<i64>(r) * spec().words, kBytes, barrier);
      }
      const bool loaded = wait_until(args.fault, {.epoch = static_cast<u64>(r)},
                                     [&](u64&) { return mbarrier_try_wait_parity(barrier, static_cast<u32>(r) & 1); });
      reverse(ex, spec, row);
      fence_proxy_async();
      ex.sync_block();
      if (ex.thread() == 0) {
        bulk_copy_shared_to_global(args.middle + static_cast<i64>(r) * spec().words, row, kBytes);
        bulk_commit_group();
        bulk_wait_group<0>();
        if (loaded) {
          st_release_gpu(args.flag, static_cast<u64>(r) + 1);
        }
      }
      ex.sync_block();
    }
  }

  template <class Exec, class S>
  static MOELINK_DEVICE void reverse(const Exec& ex, S spec, u32* row) {
    for (int i = ex.thread(); i < spec().words / 2; i += ex.num_threads()) {
      const u32 front = row[i];
      row[i] = row[spec().words - 1 - i];
      row[spec().words - 1 - i] = front;
    }
  }

  template <class Exec, class S>
  static MOELINK_DEVICE void receive(const Exec& ex, S spec, const Args& args) {
    for (int r = 0; r < args.rows; ++r) {
      const WaitFor what{.epoch = static_cast<u64>(r), .expected = static_cast<u64>(r) + 1};
      const bool lost = ex.thread() == 0 && !wait_until_reached_gpu(args.fault, what, args.flag);
      if (ex.sync_block_or(lost)) {
        if (ex.thread() == 0) {
          *args.num_lost = 1;
        }
        return;
      }
      for (int i = ex.thread(); i < spec().words; i += ex.num_threads()) {
        args.output[static_cast<i64>(r) * spec().words + i] = args.middle[static_cast<i64>(r) * spec().words + i];
      }
    }
  }
#endif
};

}  // namespace moelink::test

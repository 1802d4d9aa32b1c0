// Test kernel: two blocks play one litmus test, round after round, on fresh words each time. One thread of each plays.
#pragma once

#include "moelink/device/ptx/atomics.cuh"
#include "moelink/device/ptx/fence.cuh"
#include "moelink/device/ptx/load_store.cuh"
#include "moelink/device/sync/wait_until.cuh"

namespace moelink::test {

enum class LitmusCase : u8 {
  message_store_gpu,     ///< st_release_gpu / ld_acquire_gpu
  message_store_sys,     ///< st_release_sys / ld_acquire_sys
  message_red_gpu,       ///< red_add_release_gpu / ld_acquire_gpu
  message_red_sys,       ///< red_add_release_sys / atom_add_acquire_sys
  message_exchange_gpu,  ///< atom_exch_acq_rel_gpu / atom_cas_acq_rel_gpu
  message_relayed_gpu,   ///< a third party's relaxed add in between does not break the release sequence
  store_buffering_gpu,   ///< fence_sc_gpu forbids that both miss the other's store
  store_buffering_sys,   ///< fence_sc_sys
};

struct Litmus {
  static constexpr const char* kName = "Litmus";
  static constexpr const char* kHeader = "moelink/test/litmus.cuh";

  struct Spec {
    i32 threads = 0;
    LitmusCase which = LitmusCase::message_store_gpu;
    constexpr auto fields(auto&& visit) const { return visit(threads, which); }
  };

  /// The words of one round, each on its own cache line, zero before.
  struct alignas(128) Line {
    u64 value;
  };
  struct Round {
    Line x, y, seen_by_0, seen_by_1;
  };

  struct Args {
    Round* rounds = nullptr;
    i32 num_rounds = 0;
    u64* meeting = nullptr;    ///< counts arrivals: both blocks start a round at about the same time
    u64* num_wrong = nullptr;  ///< forbidden outcomes of message passing
    u64* num_lost = nullptr;   ///< waits that failed
    FaultContext fault;
  };

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    if (ex.thread() != 0 || ex.block() > 1) {
      return;
    }
    for (i32 i = 0; i < args.num_rounds; ++i) {
      red_add_relaxed_gpu(args.meeting, u64{1});
      const u64 both = 2 * (static_cast<u64>(i) + 1);
      const bool met = wait_until(args.fault, {.expected = both}, [&](u64& seen) {
        seen = ld_relaxed_gpu(args.meeting);
        return seen >= both;
      });
      if (!met || !play(spec, args, args.rounds[i], ex.block())) {
        red_add_relaxed_gpu(args.num_lost, u64{1});
        return;
      }
    }
  }

 private:
  template <class S>
  static MOELINK_DEVICE bool play(S spec, const Args& args, Round& round, int block) {
    if (spec().which == LitmusCase::store_buffering_gpu || spec().which == LitmusCase::store_buffering_sys) {
      buffer_store(spec, round, block);
      return true;
    }
    if (block == 0) {
      round.x.value = 42;  // plain
      publish(spec, &round.y.value);
      return true;
    }
    const bool arrived = wait_until(args.fault, {.expected = 1}, [&](u64& seen) {
      seen = look(spec, &round.y.value);
      return seen != 0;
    });
    if (arrived && round.x.value != 42) {
      red_add_relaxed_gpu(args.num_wrong, u64{1});
    }
    return arrived;
  }

  template <class S>
  static MOELINK_DEVICE void publish(S spec, u64* flag) {
    switch (spec().which) {
      case LitmusCase::message_store_sys:
        return st_release_sys(flag, u64{1});
      case LitmusCase::message_red_gpu:
        return red_add_release_gpu(flag, u64{1});
      case LitmusCase::message_red_sys:
        return red_add_release_sys(flag, u64{1});
      case LitmusCase::message_exchange_gpu:
        atom_exch_acq_rel_gpu(flag, u64{1});
        return;
      case LitmusCase::message_relayed_gpu:
        st_release_gpu(flag, u64{1});
        atom_add_relaxed_gpu(flag, u64{1});
        return;
      default:
        return st_release_gpu(flag, u64{1});
    }
  }

  template <class S>
  static MOELINK_DEVICE u64 look(S spec, u64* flag) {
    switch (spec().which) {
      case LitmusCase::message_store_sys:
        return ld_acquire_sys(flag);
      case LitmusCase::message_red_sys:
        return atom_add_acquire_sys(flag, u64{0});
      case LitmusCase::message_exchange_gpu:
        return atom_cas_acq_rel_gpu(flag, u64{7}, u64{7});
      case LitmusCase::message_relayed_gpu:
        return ld_acquire_gpu(flag) >> 1;  // only the relay's sum counts
      default:
        return ld_acquire_gpu(flag);
    }
  }

  template <class S>
  static MOELINK_DEVICE void buffer_store(S spec, Round& round, int block) {
    u64* mine = block == 0 ? &round.x.value : &round.y.value;
    const u64* other = block == 0 ? &round.y.value : &round.x.value;
    u64& seen = block == 0 ? round.seen_by_0.value : round.seen_by_1.value;
    if (spec().which == LitmusCase::store_buffering_gpu) {
      st_relaxed_gpu(mine, u64{1});
      fence_sc_gpu();
      seen = ld_relaxed_gpu(other);
    } else {
      st_relaxed_sys(mine, u64{1});
      fence_sc_sys();
      seen = ld_relaxed_sys(other);
    }
  }
};

}  // namespace moelink::test

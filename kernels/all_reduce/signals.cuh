// How the staged algorithms tell other ranks how far they have got, and wait for them: one 64-bit flag (StepFlag) per
// (block, rank) in every rank's symmetric buffer, written by that rank only, growing only.
#pragma once

#include "moelink/device/ptx/load_store.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {

/// A step of a call, as its flags announce it.
struct Step {
  u64 epoch;
  i64 number;  ///< of its call
};

/// Says that `what.peer` passed another length than this rank to the call that `what` waits in.
MOELINK_DEVICE void report_length_mismatch(const AllReduceKernelArgs& args, WaitFor what) {
  what.expected = static_cast<u64>(args.num_elements);
  report_fault(args.fault, FaultKind::mismatch, what, /*seen=*/0, /*waited_ns=*/0);
}

/// Tells this block's counterparts at every other rank. What the threads of `ex` stored before, or have acquired from
/// others, is visible to whoever acquires the flag: their barrier orders it before the release.
template <class Exec, class S>
MOELINK_DEVICE void signal_ranks(const Exec& ex, S spec, const AllReduceKernelArgs& args, const Place<u64>& flags,
                                 Step step) {
  ex.sync_block();
  const u64 flag = StepFlag::of(step.epoch, step.number, args.length_key);
  for (int peer = ex.thread(); peer < spec().num_ranks; peer += ex.num_threads()) {
    if (peer != args.window.rank) {
      u64* words = args.window.template at<u64>(peer, flags.offset_bytes, spec().num_ranks);
      st_release_sys(words + ex.block() * spec().num_ranks + args.window.rank, flag);
    }
  }
}

/// Waits for those of this block's counterparts that are this thread's to look at. False if there was a fault.
template <class Exec, class S>
MOELINK_DEVICE bool wait_for_own_share_of_ranks(const Exec& ex, S spec, const AllReduceKernelArgs& args,
                                                const Place<u64>& flags, Step step, FaultPhase phase) {
  const u64* words = args.window.template at<const u64>(args.window.rank, flags.offset_bytes, spec().num_ranks) +
                     ex.block() * spec().num_ranks;
  bool failed = false;
  for (int peer = ex.thread(); peer < spec().num_ranks && !failed; peer += ex.num_threads()) {
    if (peer != args.window.rank) {
      const WaitFor what{.phase = phase, .peer = peer, .epoch = step.epoch, .expected = step.epoch};
      u64 flag = 0;
      failed = !wait_until(args.fault, what, [&](u64& seen) {
        flag = ld_acquire_sys(words + peer);
        seen = StepFlag::epoch_of(flag);
        return seen >= step.epoch;
      });
      if (!failed && step.number == 0 && StepFlag::differs_in_length(flag, step.epoch, args.length_key)) {
        report_length_mismatch(args, what);
        failed = true;
      }
    }
  }
  return !failed;
}

/// Waits for this block's counterparts; what they stored before their signal is then visible to the whole block. False,
/// for every thread, if there was a fault: then leave.
template <class Exec, class S>
MOELINK_DEVICE bool wait_for_ranks(const Exec& ex, S spec, const AllReduceKernelArgs& args, const Place<u64>& flags,
                                   Step step, FaultPhase phase) {
  return !ex.sync_block_or(!wait_for_own_share_of_ranks(ex, spec, args, flags, step, phase));
}

/// One block's epochs of one algorithm: read on entry, one a step, kept for the next call. The word is there once for
/// each lane of a warp: of a value that the compiler knows all lanes to share it makes a uniform register, at once, for
/// which a kernel would wait before it has begun to load its input.
template <class Exec>
class BlockEpochs {
 public:
  MOELINK_DEVICE BlockEpochs(const Exec& ex, const AllReduceKernelArgs& args, i64 first)
      : ex_(ex), words_(args.block_epochs + (first + ex.block()) * kEpochLanes), before_(words_[ex.lane()]) {}

  MOELINK_DEVICE Step step(i64 number) const { return {before_ + 1 + static_cast<u64>(number), number}; }
  /// By all threads of the block, after which none of them reads the words again.
  MOELINK_DEVICE void keep(i64 num_steps) const {
    ex_.sync_block();
    if (ex_.warp() == 0) {
      words_[ex_.lane()] = before_ + static_cast<u64>(num_steps);
    }
  }

 private:
  const Exec& ex_;
  u64* words_;
  u64 before_;
};

}  // namespace moelink

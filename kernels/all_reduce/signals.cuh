// How the staged algorithms tell other ranks how far they have got, and wait for them.
//
// Blocks signal in groups: neighbours of args.group_blocks blocks, the same in every call, so that all blocks of a
// group make the same steps. A block that has done its part of a step adds to its group's counter; the last one
// releases the group's flag at every other rank. A flag is one 64-bit word per (group, rank) in every rank's symmetric
// buffer, written by that rank only, holding the step's epoch, growing only.
//
// Why groups: a release at system scope is served one after the other on a device (primitives/release_all.cuh), so one
// for each block and step would be the limit of large messages. On the host a group is one block.
//
// Ordering: block barrier, then an acquire-release add at gpu scope; the adds form a release sequence, so the last
// arriver has observed all, and its release at system scope covers every block's stores.
//
// Counters: a block signals step s+1 after it saw the peers' flags of s-1, raised after they saw this rank's flags of s-3,
// which took every block of the group. So counters of four consecutive steps may be open at once; there are four, and none
// is reset: the last arriver is the one that completes a multiple of the group.
#pragma once

#include "moelink/device/primitives/release_all.cuh"
#include "moelink/device/ptx/atomics.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {

/// One kind of signal: its flags in the symmetric buffer and its counters in private memory.
struct SignalPlace {
  Place<u64> flags;     ///< [groups][num_ranks]
  i64 counters_offset;  ///< in AllReduceKernelArgs::private_words: [groups][kCounterSteps]
};

template <class Exec>
MOELINK_DEVICE int group_of(const Exec& ex, const AllReduceKernelArgs& args) {
  return ex.block() / args.group_blocks;
}

/// Whether this thread is the one that speaks for its group: the last block's thread 0.
template <class Exec>
MOELINK_DEVICE bool is_last_of_group(const Exec& ex, const AllReduceKernelArgs& args, const SignalPlace& place,
                                     u64 epoch) {
  if (ex.thread() != 0) {
    return false;
  }
  if (args.group_blocks == 1) {
    return true;
  }
  u64* counter = args.private_words + place.counters_offset + group_of(ex, args) * AllReducePrivate::kCounterSteps +
                 static_cast<i64>(epoch % AllReducePrivate::kCounterSteps);
  return (atom_add_acq_rel_gpu(counter, u64{1}) + 1) % static_cast<u64>(args.group_blocks) == 0;
}

/// Says that this block has done its part of the step. Everything it stored before is visible to whoever then acquires
/// the group's flag.
template <class Exec, class S>
MOELINK_DEVICE void signal_ranks(const Exec& ex, S spec, const AllReduceKernelArgs& args, const SignalPlace& place,
                                 u64 epoch) {
  ex.sync_block();
  if (is_last_of_group(ex, args, place, epoch)) {
    const i64 index = group_of(ex, args) * spec().num_ranks + args.window.rank;
    st_release_sys_all(spec().num_ranks, epoch, [&](int peer) -> u64* {
      return peer == args.window.rank
                 ? nullptr
                 : args.window.template at<u64>(peer, place.flags.offset_bytes, spec().num_ranks) + index;
    });
  }
}

/// Waits until the group's counterparts at every rank have signalled the step; what they stored before is then visible
/// to the whole block. False, for every thread, if there was a fault: then leave.
template <class Exec, class S>
MOELINK_DEVICE bool wait_for_ranks(const Exec& ex, S spec, const AllReduceKernelArgs& args, const SignalPlace& place,
                                   u64 epoch, FaultPhase phase) {
  const u64* words = args.window.template at<const u64>(args.window.rank, place.flags.offset_bytes, spec().num_ranks) +
                     group_of(ex, args) * spec().num_ranks;
  bool failed = false;
  for (int peer = ex.thread(); peer < spec().num_ranks && !failed; peer += ex.num_threads()) {
    if (peer != args.window.rank) {
      const WaitFor what{.phase = phase, .peer = peer, .epoch = epoch, .expected = epoch};
      failed = !wait_until_reached_sys(args.fault, what, words + peer);
    }
  }
  return !ex.sync_block_or(failed);
}

/// One block's epoch of one algorithm: read on entry, advanced step by step, kept for the next call.
template <class Exec>
class BlockEpoch {
 public:
  MOELINK_DEVICE BlockEpoch(const Exec& ex, const AllReduceKernelArgs& args, i64 first)
      : ex_(ex), word_(args.private_words + first + ex.block()), value_(*word_) {}

  MOELINK_DEVICE u64 advance() { return ++value_; }
  /// By all threads of the block, after which none of them reads the word again.
  MOELINK_DEVICE void keep() const {
    ex_.sync_block();
    if (ex_.thread() == 0) {
      *word_ = value_;
    }
  }

 private:
  const Exec& ex_;
  u64* word_;
  u64 value_;
};

}  // namespace moelink

// A barrier over all blocks of a launch.
//
// Memory it owns: one GridBarrierWord per sequence of launches that follow each other (a stream), zero once, never
// reset.
//
// Phases:
//  1. Block barrier: all of the block's accesses are before what its thread 0 does next.
//  2. Thread 0 adds to the word: block 0 adds 2^32 - (n - 1), the n - 1 others add 1. Whatever the order, the sum over
//     the grid is 2^32: the low half returns to zero and the high half, the epoch, goes up by one at the last arrival
//     and not before. So the word serves launches of any grid size one after the other.
//  3. Thread 0 polls the word until its epoch differs from the one that its own add met: one hop, the last arrival is
//     the release. The epoch cannot change twice, because that takes another arrival of this block; it may wrap.
//  4. Block barrier, which also tells all threads whether the wait was in vain.
//
// Ordering: each add is acquire-release at gpu scope. The adds of one epoch form a release sequence, so the acquire
// load that sees the last of them synchronises with all of them; with the block barriers on both sides, everything that
// any thread of the grid did before the barrier is visible to every thread after it.
//
// In two halves, a block does in between what no other block waits for: most of what a barrier costs is the way of the
// adds to memory and back.
//
// Progress: every block of the grid must be resident. The caller sees to it (launch bounds and occupancy on a GPU; no
// more blocks than threads on the host), or the wait ends at its deadline with a fault.
#pragma once

#include "moelink/device/ptx/atomics.cuh"
#include "moelink/device/sync/wait_until.cuh"

namespace moelink {

/// Low half: arrivals. High half: epoch. On a cache line that nothing else uses, or 600 ns become more.
struct alignas(8) GridBarrierWord {
  u64 value;
};

/// Phases 1 and 2, by all threads of all blocks. Returns, in thread 0, what wait_at_grid_barrier() wants.
template <class Exec>
MOELINK_DEVICE u64 arrive_at_grid_barrier(const Exec& ex, GridBarrierWord* word) {
  ex.sync_block();
  if (ex.num_blocks() == 1 || ex.thread() != 0) return 0;
  const u64 num_others = static_cast<u64>(ex.num_blocks()) - 1;
  const u64 addend = ex.block() == 0 ? (u64{1} << 32) - num_others : 1;
  return atom_add_acq_rel_gpu(&word->value, addend) >> 32;
}

/// Phases 3 and 4, by all threads of all blocks. Returns true, everywhere, if all came; false if the deadline of
/// `context` passed or there was another fault: then leave.
template <class Exec>
MOELINK_DEVICE bool wait_at_grid_barrier(const Exec& ex, GridBarrierWord* word, const FaultContext& context,
                                         u64 epoch) {
  bool is_broken = false;
  if (ex.num_blocks() != 1 && ex.thread() == 0) {
    const WaitFor what{.phase = FaultPhase::grid_barrier, .epoch = epoch, .expected = static_cast<u32>(epoch + 1)};
    is_broken = !wait_until(context, what, [&](u64& seen) {
      seen = ld_acquire_gpu(&word->value) >> 32;
      return seen != epoch;
    });
  }
  return !ex.sync_block_or(is_broken);
}

/// Waits for all blocks of the launch.
template <class Exec>
MOELINK_DEVICE bool grid_barrier(const Exec& ex, GridBarrierWord* word, const FaultContext& context) {
  return wait_at_grid_barrier(ex, word, context, arrive_at_grid_barrier(ex, word));
}

}  // namespace moelink

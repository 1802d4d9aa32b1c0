// One 64-bit flag per (slot, rank) in every rank's symmetric buffer, written by that rank only, holding the epoch that it
// announces, growing only. A slot is what the same block of every rank works on.
#pragma once

#include "moelink/device/ptx/load_store.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/carver.hpp"
#include "moelink/protocol/window.hpp"

namespace moelink {

/// By the block: tells every other rank. What the block stored before is visible to whoever acquires the flag: the block
/// barrier orders the other threads' stores before the release.
template <class Exec, class S>
MOELINK_DEVICE void raise_peer_flags(const Exec& ex, S spec, const Window& window, const Place<u64>& flags, i64 slot,
                                     u64 epoch) {
  ex.sync_block();
  for (int peer = ex.thread(); peer < spec().num_ranks; peer += ex.num_threads()) {
    if (peer == window.rank) continue;
    u64* words = window.template at<u64>(peer, flags.offset_bytes, spec().num_ranks);
    st_release_sys(words + slot * spec().num_ranks + window.rank, epoch);
  }
}

/// By the block: waits for every other rank; what they stored before is then visible to the whole block. False, for
/// every thread, if there was a fault: then leave.
template <class Exec, class S>
MOELINK_DEVICE bool wait_for_peer_flags(const Exec& ex, S spec, const Window& window, const FaultContext& fault,
                                        const Place<u64>& flags, i64 slot, u64 epoch, FaultPhase phase) {
  const u64* words = window.template at<const u64>(window.rank, flags.offset_bytes, spec().num_ranks);
  bool failed = false;
  for (int peer = ex.thread(); peer < spec().num_ranks && !failed; peer += ex.num_threads()) {
    if (peer == window.rank) continue;
    const WaitFor what{.phase = phase, .peer = peer, .epoch = epoch, .expected = epoch};
    failed = !wait_until_reached_sys(fault, what, words + slot * spec().num_ranks + peer);
  }
  return !ex.sync_block_or(failed);
}

}  // namespace moelink

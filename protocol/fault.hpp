// Faults: what went wrong on a device, who noticed, and how it reaches the host and the peers.
//
// A fault is terminal for the object that owns the FaultContext. The first one wins: it is the one that changes the
// fault word of its rank from zero (compare and swap), and it alone is described in that rank's FaultRecord. The word
// is sticky; every wait looks at it and leaves. From the word of one rank the fault is written into the words of the
// others.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

enum class FaultKind : u8 {
  none,
  wait_expired,  ///< a wait took longer than its deadline
  peer_fault,    ///< a peer had a fault and said so
  out_of_order,  ///< a call in a phase that does not allow it
  link_broken,   ///< a transport lost a rank
  aborted,       ///< the host gave up, here or at a peer
  mismatch,      ///< two ranks passed to one call what does not fit together
};

/// Where a rank was. Part of messages.
enum class FaultPhase : u8 {
  none,
  grid_barrier,
  peer_barrier,
  dispatch_send,
  dispatch_receive,
  combine_send,
  combine_receive,
  all_reduce_push,
  all_reduce_pack,
  all_reduce_stream,
  all_reduce_staged,
  all_reduce_reduced,
  proxy,
  tp_inputs,
  tp_push,
  tp_pull,
  tp_staged,
  tp_reduced,
};

/// The fault word: kind, phase, the rank that had the fault and the peer it waited for (-1: none). Zero means no fault.
struct FaultWord {
  FaultKind kind = FaultKind::none;
  FaultPhase phase = FaultPhase::none;
  i32 rank = 0;
  i32 peer = -1;

  /// `described`: some thread of the rank that owns the word writes, or has written, its FaultRecord.
  MOELINK_DEVICE constexpr u64 packed(bool described) const {
    return static_cast<u64>(kind) | static_cast<u64>(phase) << 8 | static_cast<u64>(static_cast<u16>(rank)) << 16 |
           static_cast<u64>(static_cast<u16>(peer)) << 32 | (described ? kDescribed : 0);
  }
  MOELINK_DEVICE static constexpr FaultWord unpacked(u64 word) {
    return {static_cast<FaultKind>(word & 0xff), static_cast<FaultPhase>(word >> 8 & 0xff),
            static_cast<i16>(word >> 16 & 0xffff), static_cast<i16>(word >> 32 & 0xffff)};
  }

  static constexpr u64 kDescribed = u64{1} << 63;
};

/// The fault in full, in memory that the host and the device both see. Zero at the start. `is_complete` becomes 1,
/// released at system scope, when all else has been written; the host acquires it.
struct alignas(64) FaultRecord {
  u64 is_complete = 0;
  u64 abort_requested = 0;  ///< written by the host (relaxed): waits look at it now and then
  FaultWord fault;          ///< whose fault it was
  i32 rank = 0;             ///< who describes it here: the owner of the record
  u64 epoch = 0;            ///< of the wait in which it was noticed
  u64 expected = 0;         ///< what that wait waited for; of a mismatch, the length that this rank passed
  u64 seen = 0;             ///< what it saw last
  u64 waited_ns = 0;        ///< how long it had waited
};

/// What a kernel needs to wait with a deadline and to report. Part of kernel arguments; owns nothing. Without `word`
/// and `record` waits are still bounded, and nobody is told.
struct FaultContext {
  static constexpr u64 kDefaultTimeoutNs = 30'000'000'000;

  u64* word = nullptr;               ///< this rank's fault word, in its device memory
  FaultRecord* record = nullptr;     ///< host memory that the device can write
  u64* const* peer_words = nullptr;  ///< [num_peers] fault words of others that can be reached, in device memory
  i32 num_peers = 0;
  i32 rank = 0;
  u64 timeout_ns = kDefaultTimeoutNs;
};

}  // namespace moelink

// Reporting and noticing faults (protocol/fault.hpp).
#pragma once

#include "moelink/device/ptx/atomics.cuh"
#include "moelink/device/ptx/load_store.cuh"
#include "moelink/protocol/fault.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// What a wait waits for, for the message if it never comes.
struct WaitFor {
  FaultPhase phase = FaultPhase::none;
  i32 peer = -1;     ///< who should have written; -1: this rank itself
  u64 epoch = 0;     ///< the call that waits
  u64 expected = 0;  ///< the value that should have come
};

/// Fills this rank's record. By the one thread that set FaultWord::kDescribed.
MOELINK_DEVICE void describe_fault(const FaultContext& context, FaultWord fault, const WaitFor& what, u64 seen,
                                   u64 waited_ns) {
  if (context.record == nullptr) {
    return;
  }
  FaultRecord& record = *context.record;
  record.fault = fault;
  record.rank = context.rank;
  record.epoch = what.epoch;
  record.expected = what.expected;
  record.seen = seen;
  record.waited_ns = waited_ns;
  st_release_sys(&record.is_complete, u64{1});
}

// What follows a fault is a call, with its words in registers: in line it was most of a kernel's code, which then took
// longer to compile and to fetch.
namespace fault_calls {

/// By the first thread that meets a peer's fault: describes it in this rank's record.
MOELINK_COLD void notice(const FaultContext& context, u64 word, WaitFor what, u64 seen, u64 waited_ns) {
  if ((word & FaultWord::kDescribed) == 0 &&
      atom_cas_relaxed_sys(context.word, word, word | FaultWord::kDescribed) == word) {
    describe_fault(context, FaultWord::unpacked(word), what, seen, waited_ns);
  }
}

MOELINK_COLD void report(const FaultContext& context, FaultKind kind, WaitFor what, u64 seen, u64 waited_ns) {
  const FaultWord fault{kind, what.phase, context.rank, what.peer};
  if (context.word == nullptr) {
    return;
  }
  if (const u64 first = atom_cas_relaxed_sys(context.word, u64{0}, fault.packed(true)); first != 0) {
    notice(context, first, what, seen, waited_ns);
    return;
  }
  describe_fault(context, fault, what, seen, waited_ns);
  const bool is_everyones = kind == FaultKind::aborted || kind == FaultKind::mismatch;
  const FaultKind told = is_everyones ? kind : FaultKind::peer_fault;
  for (i32 i = 0; i < context.num_peers; ++i) {
    atom_cas_relaxed_sys(context.peer_words[i], u64{0},
                         FaultWord{told, what.phase, context.rank, what.peer}.packed(false));
  }
}

}  // namespace fault_calls

/// Whether there is a fault: this rank's, or one that a peer has written here.
MOELINK_DEVICE bool has_fault(const FaultContext& context) {
  return context.word != nullptr && ld_relaxed_sys(context.word) != 0;
}

/// Whether there is a fault: this rank's, or one that a peer has written here. The first thread that meets a peer's
/// fault describes it in this rank's record.
MOELINK_DEVICE bool notice_fault(const FaultContext& context, const WaitFor& what, u64 seen, u64 waited_ns) {
  const u64 word = context.word != nullptr ? ld_relaxed_sys(context.word) : 0;
  if (word == 0) {
    return false;
  }
  fault_calls::notice(context, word, what, seen, waited_ns);
  return true;
}

/// Reports a fault of this rank. Only the first is kept; it also goes to every peer that has none yet. Where a peer's
/// came first, that one is described: the caller leaves, and may be the last here to look.
MOELINK_DEVICE void report_fault(const FaultContext& context, FaultKind kind, const WaitFor& what, u64 seen,
                                 u64 waited_ns) {
  fault_calls::report(context, kind, what, seen, waited_ns);
}

/// Whether the host has asked this rank to give up. Reads host memory: rarely.
MOELINK_DEVICE bool abort_requested(const FaultContext& context) {
  return context.record != nullptr && ld_relaxed_sys(&context.record->abort_requested) != 0;
}

}  // namespace moelink

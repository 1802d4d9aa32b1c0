// The one way to wait.
//
// NOTE [bounded waits]. Nothing in the library waits on another block or rank except through wait_until():
//  1. It polls. `poll(u64& seen)` loads with the order that the algorithm needs (an acquire, if data follows), puts what
//     it saw into `seen` and returns whether that is enough. When it is, wait_until() returns true, at the cost of the
//     polls.
//  2. Now and then it checks the fault word, in this device's memory: a fault of this rank or a peer ends every wait at
//     once, so that whatever is queued behind does not wait its own deadline each.
//  3. Rarely, on a GPU after some milliseconds, it looks at the clock and at the host's wish to give up. Both leave the
//     SM and are served one after the other for the whole device: a look by every waiting block in the first
//     microseconds would cost more than what it waits for (docs/decisions/0005-waits-look-rarely.md).
//  4. Past the deadline, counted from the first look, it reports the fault: who waited, for whom, in which phase and
//     epoch, what it expected and saw. The first report wins.
//  5. On a fault it returns false. The caller then leaves in good order: it passes the block barriers its block expects,
//     touches no payload, and writes no flag that would say otherwise.
// One thread polls; how the others learn the outcome is up to the caller (sync_block_or, as in grid_barrier.cuh).
#pragma once

#include "moelink/device/ptx/time.cuh"
#include "moelink/device/sync/fault.cuh"

namespace moelink {

namespace wait_calls {

/// Why a wait is over without what it waited for: a fault, or else the deadline, or else the host's wish.
MOELINK_COLD void give_up(const FaultContext& context, WaitFor what, u64 seen, u64 waited_ns) {
  if (notice_fault(context, what, seen, waited_ns)) return;
  const bool expired = waited_ns > context.timeout_ns;
  report_fault(context, expired ? FaultKind::wait_expired : FaultKind::aborted, what, seen, waited_ns);
}

}  // namespace wait_calls

/// Waits, with the deadline of `context`, until poll(seen) is true. Returns whether it came true. In line, and in loops
/// of others, at many places: so it nests as little as it can, has one way out, and no && or || that would be a branch
/// (docs/decisions/0018-convergence-barriers-are-few.md).
template <class Poll>
MOELINK_DEVICE bool wait_until(const FaultContext& context, const WaitFor& what, Poll&& poll) {
  constexpr u32 kPollsPerCheck = 64;
  constexpr u32 kFirstCheck = 8;  // early, for when there is a fault already
  constexpr u32 kPollsPerLook = MOELINK_ON_DEVICE ? 4096 : kPollsPerCheck;
  u64 seen = 0;
  u64 start_ns = 0;
  u64 waited_ns = 0;
  bool is_there = poll(seen);
  bool gives_up = false;
  for (u32 polls = 0; !is_there && !gives_up; ++polls) {
    if (polls % kPollsPerCheck == kFirstCheck) gives_up = has_fault(context);
    if (polls % kPollsPerLook == kPollsPerLook - 1) {
      const u64 now_ns = clock_ns();
      start_ns = start_ns == 0 ? now_ns : start_ns;
      waited_ns = now_ns - start_ns;
      const bool expired = waited_ns > context.timeout_ns;
      gives_up = abort_requested(context) | expired;
    }
    pause_between_polls(polls);
    is_there = poll(seen);
  }
  if (!is_there) wait_calls::give_up(context, what, seen, waited_ns);
  return is_there;
}

/// Waits until a word that only grows, and that this block alone writes, has reached what.expected, acquiring what its
/// writer released in the block.
MOELINK_DEVICE bool wait_until_reached_block(const FaultContext& context, const WaitFor& what, const u64* word) {
  return wait_until(context, what, [&](u64& seen) {
    seen = ld_acquire_block(word);
    return seen >= what.expected;
  });
}

/// Waits until a word that only grows has reached what.expected, acquiring what its writer released on this device.
MOELINK_DEVICE bool wait_until_reached_gpu(const FaultContext& context, const WaitFor& what, const u64* word) {
  return wait_until(context, what, [&](u64& seen) {
    seen = ld_acquire_gpu(word);
    return seen >= what.expected;
  });
}

/// The same for words that other devices or the host write.
MOELINK_DEVICE bool wait_until_reached_sys(const FaultContext& context, const WaitFor& what, const u64* word) {
  return wait_until(context, what, [&](u64& seen) {
    seen = ld_acquire_sys(word);
    return seen >= what.expected;
  });
}

}  // namespace moelink

// What one block of every tensor-parallel combine does while the others sum: it compares the inputs over the ranks, and
// tells them how many entries found no room.
//
//  1. Adds up the parts of the digest that dispatch left, and stores digest, call key and dropped entries as lines at every
//     other rank.
//  2. Waits for the same of every rank. A difference is a fault (FaultKind::mismatch), which ends every wait of the
//     call: also those for blocks that a rank with other inputs does not run.
//  3. Reports entries that others dropped; the phase moves on.
//
// Memory: lines [2][num_ranks][kTpControlWords] in the symmetric buffer, one private epoch. Ordering and reuse as for
// the lines of push (docs/tensor-parallel.md).
#pragma once

#include "moelink/device/moe/routing.cuh"
#include "moelink/device/moe/routing_digest.cuh"
#include "moelink/device/sync/line.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/tensor_parallel.hpp"

namespace moelink {

/// What a rank says.
struct TpControlWords {
  u32 words[kTpControlWords];

  MOELINK_DEVICE TpControlWords() : words{} {}
  MOELINK_DEVICE TpControlWords(u64 digest, u32 key, u64 dropped)
      : words{static_cast<u32>(digest), static_cast<u32>(digest >> 32), key, static_cast<u32>(dropped)} {}

  MOELINK_DEVICE bool same_inputs(const TpControlWords& other) const {
    return words[0] == other.words[0] && words[1] == other.words[1] && words[2] == other.words[2];
  }
  MOELINK_DEVICE u64 digest() const { return static_cast<u64>(words[1]) << 32 | words[0]; }
  MOELINK_DEVICE u32 num_dropped() const { return words[3]; }
};

template <class S>
MOELINK_DEVICE WordPair* tp_control_lines(S spec, const TensorParallelArgs& args, int holder, int source, u64 epoch) {
  const i64 slot = static_cast<i64>(epoch & 1U) * spec().num_ranks + source;
  return args.window.template at<WordPair>(holder, args.layout.control.offset_bytes, spec().num_ranks) +
         slot * (kTpControlWords / 2);
}

/// The sum of the digest's parts, in every lane. By a warp.
template <class Exec>
MOELINK_DEVICE u64 sum_of_digest(const Exec& ex, const RoutingDigest& digest) {
  const i32 num_parts = static_cast<i32>(min_of(digest.num_parts, static_cast<u64>(RoutingDigest::kMaxParts)));
  EntryHash hash;
  for (i32 part = ex.lane(); part < num_parts; part += Exec::kWarpSize) hash.add(digest.parts[part]);
  return hash.over_warp(ex).word();
}

/// Waits for what `peer` says. False if there was a fault.
template <class S>
MOELINK_DEVICE bool wait_for_control(S spec, const TensorParallelArgs& args, int peer, u64 epoch,
                                     TpControlWords& words) {
  const WordPair* lines = tp_control_lines(spec, args, args.window.rank, peer, epoch);
  const u32 tag = line_tag(epoch);
  const WaitFor what{.phase = FaultPhase::tp_inputs, .peer = peer, .epoch = epoch, .expected = epoch};
  return wait_until(args.fault, what, [&](u64& seen) {
    const WordPair low = ld_relaxed_sys_pair(lines);
    const WordPair high = ld_relaxed_sys_pair(lines + 1);
    words.words[0] = static_cast<u32>(low.first);
    words.words[1] = static_cast<u32>(low.second);
    words.words[2] = static_cast<u32>(high.first);
    words.words[3] = static_cast<u32>(high.second);
    const bool arrived =
        has_tag(low.first, tag) && has_tag(low.second, tag) && has_tag(high.first, tag) && has_tag(high.second, tag);
    seen = arrived ? epoch : epoch - 1;
    return arrived;
  });
}

/// By one block of the launch. `dropped`: a word of its scratch.
template <class Exec, class S>
MOELINK_DEVICE void exchange_control(const Exec& ex, S spec, const TensorParallelArgs& args, u32* dropped) {
  const PhaseWord phase(ex, true, args.combine.phase, PhaseWord::Call::combine);
  u64* const epoch_word = args.epochs + TensorParallelEpochs::kControl;
  const u64 epoch = *epoch_word + 1;
  const TpControlWords mine(sum_of_digest(ex, *args.digest), static_cast<u32>(spread_bits(args.call_key)),
                            args.digest->num_dropped);
  if (ex.thread() == 0) *dropped = 0;
  const u32 tag = line_tag(epoch);
  for (int step = 1 + ex.thread(); step < spec().num_ranks; step += ex.num_threads()) {
    const int peer = (args.window.rank + step) % spec().num_ranks;
    WordPair* lines = tp_control_lines(spec, args, peer, args.window.rank, epoch);
    st_relaxed_sys_pair(lines, {make_line(mine.words[0], tag), make_line(mine.words[1], tag)});
    st_relaxed_sys_pair(lines + 1, {make_line(mine.words[2], tag), make_line(mine.words[3], tag)});
  }
  ex.sync_block();
  for (int step = 1 + ex.thread(); step < spec().num_ranks; step += ex.num_threads()) {
    const int peer = (args.window.rank + step) % spec().num_ranks;
    TpControlWords theirs;
    if (!wait_for_control(spec, args, peer, epoch, theirs)) break;
    if (!mine.same_inputs(theirs)) {
      const WaitFor what{.phase = FaultPhase::tp_inputs, .peer = peer, .epoch = epoch, .expected = mine.digest()};
      report_fault(args.fault, FaultKind::mismatch, what, theirs.digest(), 0);
      break;
    }
    if (theirs.num_dropped() != 0) scratch_add(ex, dropped, theirs.num_dropped());
  }
  ex.sync_block();
  if (ex.thread() == 0) {
    report(&args.combine.status->entries_dropped_by_peers, *dropped);
    *epoch_word = epoch;
  }
  phase.advance(args.combine.status);
}

}  // namespace moelink

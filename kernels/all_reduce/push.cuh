// All-reduce by lines: small messages, one trip, no flags. Protocol and reuse argument: docs/all-reduce.md, "Push".
//
//   1. Every thread stores its 16 bytes as lines {data, tag} at every peer.
//   2. It polls its own lines of every peer until they carry the tag of this epoch, adds in rank order, stores the sum.
//      A line of this epoch and another length is a fault.
//   3. The block stores its next epoch.
//
// Memory: lines [2][num_ranks][kMaxPushBlocks][threads][4] in the symmetric buffer; one private epoch per block.
// Ordering: an 8-byte line is single-copy atomic, so data and tag arrive together; nothing else crosses.
#pragma once

#include "moelink/device/all_reduce/message.cuh"
#include "moelink/device/all_reduce/signals.cuh"
#include "moelink/device/all_reduce/sum.cuh"
#include "moelink/device/exec/spec.cuh"
#include "moelink/device/ptx/load_store.cuh"
#include "moelink/device/sync/tagged_word.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {

struct AllReducePush {
  static constexpr const char* kName = "AllReducePush";
  static constexpr const char* kHeader = "moelink/device/all_reduce/push.cuh";
  using Spec = AllReduceSpec;
  using Args = AllReduceKernelArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) { run_typed<element()>(ex, spec, args); });
  }

 private:
  /// Ranks polled at once: enough loads in flight to hide one trip, few enough registers not to spill.
  static constexpr int kGroup = 8;

  template <Element E, class Exec, class S>
  MOELINK_DEVICE static void run_typed(const Exec& ex, S spec, const Args& args) {
    const BlockEpochs epochs(ex, args, AllReduceEpochs::kPush);
    const u64 epoch = epochs.step(0).epoch;
    const u32 tag = LineTag::of(epoch, args.length_key);
    const Message<const u8> input(static_cast<const u8*>(args.input), args.num_elements, E);
    const Message<u8> output(static_cast<u8*>(args.output), args.num_elements, E);

    for (int i = ex.thread(); i < kPushThreads; i += ex.num_threads()) {
      const Vec16 mine = input.load(vector_of(ex, i));
      for (int step = 1; step < spec().num_ranks; ++step) {
        // Start with the next rank, so that not all ranks store to rank 0 first.
        const int peer = (args.window.rank + step) % spec().num_ranks;
        store_lines(lines_of(ex, spec, args, peer, args.window.rank, epoch, i), mine, tag);
      }
    }
    for (int i = ex.thread(); i < kPushThreads; i += ex.num_threads()) {
      const i64 vector = vector_of(ex, i);
      VectorSum<E> sum;
      bool arrived = true;
      for (int first = 0; first < spec().num_ranks && arrived; first += kGroup) {
        arrived = add_group(ex, spec, args, sum, input, vector, epoch, i, first);
      }
      if (arrived && vector < output.num_vectors()) {
        output.store(vector, sum.rounded());
      }
    }
    epochs.keep(1);
  }

  template <class Exec>
  MOELINK_DEVICE static i64 vector_of(const Exec& ex, int i) {
    return static_cast<i64>(ex.block()) * kPushThreads + i;
  }

  /// The two pairs of lines of thread i, one for each half of its 16 bytes. A warp's first halves lie side by side, and
  /// so do its second halves: every access of a warp is one run of 512 bytes.
  struct Lines {
    WordPair* low;
    WordPair* high;
  };
  template <class Exec, class S>
  MOELINK_DEVICE static Lines lines_of(const Exec& ex, S spec, const Args& args, int holder, int source, u64 epoch,
                                       int i) {
    const i64 slot = static_cast<i64>(epoch & 1U) * spec().num_ranks + source;
    const i64 block_slot = slot * kMaxPushBlocks + ex.block();
    const i64 offset_bytes = AllReduceLayout::of(spec()).push_lines.offset_bytes;
    WordPair* first = args.window.template at<WordPair>(holder, offset_bytes, spec().num_ranks) +
                      block_slot * kPushThreads * (kLinesPerVector / 2);
    return {first + i, first + kPushThreads + i};
  }

  MOELINK_DEVICE static void store_lines(const Lines& lines, const Vec16& value, u32 tag) {
    st_relaxed_sys_pair(lines.low, {tagged(value.x, tag), tagged(value.y, tag)});
    st_relaxed_sys_pair(lines.high, {tagged(value.z, tag), tagged(value.w, tag)});
  }

  /// Loads the four lines; true if all carry the tag. `found` is the tag of the first.
  MOELINK_DEVICE static bool try_load_lines(const Lines& lines, u32 tag, Vec16& value, u32& found) {
    const WordPair low = ld_relaxed_sys_pair(lines.low);
    const WordPair high = ld_relaxed_sys_pair(lines.high);
    value = {data_of(low.first), data_of(low.second), data_of(high.first), data_of(high.second)};
    found = static_cast<u32>(low.first >> 32U);
    return carry(low, tag) && carry(high, tag);
  }

  /// Waits for up to kGroup ranks' lines at once and adds them in rank order. False if there was a fault.
  template <class Exec, class S, class Sum>
  MOELINK_DEVICE static bool add_group(const Exec& ex, S spec, const Args& args, Sum& sum,
                                       const Message<const u8>& input, i64 vector, u64 epoch, int i, int first) {
    Vec16 values[kGroup] = {};
    const u32 tag = LineTag::of(epoch, args.length_key);
    bool disagree = false;
    WaitFor what{.phase = FaultPhase::all_reduce_push, .epoch = epoch, .expected = epoch};
    const bool arrived = wait_until(args.fault, what, [&](u64& seen) {
      bool all = true;
      MOELINK_UNROLL
      for (int j = 0; j < kGroup; ++j) {
        const int peer = first + j;
        if (peer >= spec().num_ranks) {
          break;
        }
        if (peer == args.window.rank) {
          values[j] = input.load(vector);
          continue;
        }
        u32 found = 0;
        if (!try_load_lines(lines_of(ex, spec, args, args.window.rank, peer, epoch, i), tag, values[j], found)) {
          what.peer = peer;  // whom to name if it never comes
          seen = LineTag::epoch_of(found, epoch);
          disagree = disagree || LineTag::differs_in_length(found, tag);
          all = false;
        }
      }
      return all || disagree;
    });
    if (disagree) {
      report_length_mismatch(args, what);
      return false;
    }
    if (arrived) {
      MOELINK_UNROLL
      for (int j = 0; j < kGroup; ++j) {
        if (first + j >= spec().num_ranks) {
          break;
        }
        if (first + j == 0) {
          sum.start(values[j]);
        } else {
          sum.add(values[j]);
        }
      }
    }
    return arrived;
  }
};

}  // namespace moelink

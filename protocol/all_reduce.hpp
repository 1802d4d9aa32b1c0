// What host and kernels agree on for all-reduce: the spec, the arguments, and the layout of the symmetric memory.
//
// The protocol, its ordering argument and the reuse argument of every region: docs/all-reduce.md.
#pragma once

#include "moelink/protocol/carver.hpp"
#include "moelink/protocol/element.hpp"
#include "moelink/protocol/fault.hpp"
#include "moelink/protocol/types.hpp"
#include "moelink/protocol/window.hpp"

namespace moelink {

/// Sixteen bytes of payload travel as four lines of 8 bytes: {data, tag}, the tag made of epoch and length.
inline constexpr int kLinesPerVector = 4;

/// Largest grids, and block sizes. A block owns the same slice of every region in every call, whatever the grid: this
/// is what makes per-block epochs enough (docs/all-reduce.md, "Epochs belong to blocks").
inline constexpr int kMaxPushBlocks = 128;
inline constexpr int kMaxStagedBlocks = 128;
inline constexpr int kMaxPackBlocks = 128;
inline constexpr int kPushThreads = 64;
inline constexpr int kPackThreads = 256;
inline constexpr int kTwoShotThreads = 512;
/// Threads of a block of the stream algorithm: those that send, the warp that signals, those that sum.
inline constexpr int kStreamSenders = 256;
inline constexpr int kStreamSignallers = 32;
inline constexpr int kStreamSummers = 256;
inline constexpr int kStreamThreads = kStreamSenders + kStreamSignallers + kStreamSummers;
/// A step is sent when the signals of the one so many before it have been seen (docs/all-reduce.md, "Stream").
inline constexpr int kStreamAhead = 3;
inline constexpr int kStreamSlots = 8;
static_assert(kStreamSlots > 2 * kStreamAhead, "a slot that is sent to has been read");
/// Most bytes per block and step of the stream algorithm. However many ranks send: all slots together take as much.
MOELINK_DEVICE constexpr i32 stream_slot_bytes(int num_ranks) {
  return num_ranks <= 2 ? 32 * 1024 : max_of(16, 32 * 1024 / (num_ranks - 1) / 16 * 16);
}
/// Payload bytes of a push block: sixteen a thread.
inline constexpr i64 kPushSliceBytes = kPushThreads * 16;

/// Pack: three vectors that travel as four lines of 16 bytes, {12 bytes of data, tag}. Packs that follow one another
/// are taken in groups, so that every access of a warp is one run of 512 bytes: the first vectors of a group's packs
/// lie side by side in the message, then the second, then the third; so do their lines.
inline constexpr int kPackVectors = 3;
inline constexpr int kPackLines = 4;
inline constexpr int kPackGroup = 32;
inline constexpr int kPackGroupVectors = kPackGroup * kPackVectors;
/// Groups of a pack block's slot: 4 MiB and somewhat more, of all blocks.
inline constexpr int kPackSlotGroups = 22;
inline constexpr int kPackSlotPacks = kPackSlotGroups * kPackGroup;
inline constexpr i64 kPackSlotBytes = i64{kPackSlotGroups} * kPackGroupVectors * 16;

/// What stands for a message's length in tags and flags, so that ranks which disagree notice: 16 bits. Two lengths with
/// one key are a multiple of the prime apart; lengths of whole tokens, of any hidden size, are then 65521 tokens apart.
inline constexpr int kLengthKeyBits = 16;
MOELINK_DEVICE constexpr u32 length_key(i64 num_elements) { return static_cast<u32>(num_elements % 65521); }

/// What a line's tag holds. Zeroed memory is no tag: the highest bit is set.
struct LineTag {
  static constexpr u32 kEpochMask = 0x7fff;

  MOELINK_DEVICE static constexpr u32 of(u64 epoch, u32 key) {
    return 0x80000000U | (static_cast<u32>(epoch) & kEpochMask) << kLengthKeyBits | key;
  }
  /// Whether `found` belongs to the call that `expected` is a tag of, at a rank that passed another length.
  MOELINK_DEVICE static constexpr bool differs_in_length(u32 found, u32 expected) {
    return found != expected && (found ^ expected) >> kLengthKeyBits == 0;
  }
  /// The epoch of a tag that is no later than `epoch`; 0 of fresh memory.
  MOELINK_DEVICE static constexpr u64 epoch_of(u32 found, u64 epoch) {
    return found == 0 ? 0 : epoch - ((epoch - (found >> kLengthKeyBits)) & kEpochMask);
  }
};

static_assert(2 * kPackSlotPacks <= static_cast<int>(LineTag::kEpochMask),
              "every line of a slot is renewed before its tag's epoch bits come again");

/// What a flag of the staged algorithms holds: it grows with the epoch of the step that it announces.
struct StepFlag {
  static constexpr int kStepBits = 3;
  static constexpr i64 kLateStep = (1 << kStepBits) - 1;  ///< this one of its call, or one behind it
  static constexpr int kEpochShift = kLengthKeyBits + kStepBits;

  /// `step`: of its call.
  MOELINK_DEVICE static constexpr u64 of(u64 epoch, i64 step, u32 key) {
    return epoch << kEpochShift | static_cast<u64>(min_of(step, kLateStep)) << kLengthKeyBits | key;
  }
  MOELINK_DEVICE static constexpr u64 epoch_of(u64 flag) { return flag >> kEpochShift; }
  /// Whether the flag's rank is in the call that begins with `first_epoch`, and passed another length. Exact for a rank
  /// that has not seen this rank's flag of that epoch, and so has not come to its late steps (docs/all-reduce.md,
  /// "Lengths").
  MOELINK_DEVICE static constexpr bool differs_in_length(u64 flag, u64 first_epoch, u32 key) {
    const i64 step = static_cast<i64>(flag >> kLengthKeyBits) & kLateStep;
    const bool is_of_call = step < kLateStep && epoch_of(flag) - static_cast<u64>(step) == first_epoch;
    return is_of_call && (flag & ((u64{1} << kLengthKeyBits) - 1)) != key;
  }
};
static_assert(kStreamAhead <= StepFlag::kLateStep, "steps that a rank may send before its first wait are told apart");

/// Specialises the all-reduce kernels.
struct AllReduceSpec {
  Element element = Element::bfloat16;
  i32 num_ranks = 0;
  i32 threads = 0;
  i32 slot_bytes = 0;      ///< two-shot: most bytes per block and step, a multiple of 16
  bool multicast = false;  ///< two-shot through the multicast mapping (NVLS)

  MOELINK_DEVICE constexpr auto fields(auto&& visit) const {
    return visit(element, num_ranks, threads, slot_bytes, multicast);
  }
};

/// Arguments of every all-reduce kernel. `input` and `output` are this rank's; they may be the same memory.
struct AllReduceKernelArgs {
  const void* input;
  void* output;
  i64 num_elements;
  u32 length_key;     ///< length_key(num_elements)
  i64 num_steps;      ///< staged algorithms; like chunk_vectors the same on every rank
  i64 chunk_vectors;  ///< all but push: vectors per block and step, as many as fit a slot at most
  Window window;      ///< the symmetric buffer, laid out by AllReduceLayout
  u64* block_epochs;  ///< private, laid out by AllReduceEpochs, zero at construction
  FaultContext fault;
};

/// What the warps of a stream block tell one another: numbers of steps of this call.
struct StreamScratch {
  u64 stored[kStreamSenders / 32];  ///< by each warp that sends
  u64 seen;                         ///< signals of so many steps have been seen, and the sums of all but the last left
};

/// The private epochs: one per block and algorithm, each kept in as many words as a warp has lanes.
inline constexpr int kEpochLanes = 32;
struct AllReduceEpochs {
  static constexpr i64 kPush = 0;
  static constexpr i64 kPack = kPush + kMaxPushBlocks;
  static constexpr i64 kStream = kPack + kMaxPackBlocks;
  static constexpr i64 kTwoShot = kStream + kMaxStagedBlocks;
  static constexpr i64 kNumWords = (kTwoShot + kMaxStagedBlocks) * kEpochLanes;
};

MOELINK_DEVICE constexpr i64 stream_staging_bytes(int num_ranks) {
  return i64{kStreamSlots} * (num_ranks - 1) * kMaxStagedBlocks * stream_slot_bytes(num_ranks);
}

/// Of two ranks each has a slot for the other's packs; with more ranks there is no such algorithm.
MOELINK_DEVICE constexpr bool can_pack(int num_ranks) { return num_ranks <= 2; }
MOELINK_DEVICE constexpr i64 num_pack_lines(int num_ranks) {
  return num_ranks == 2 ? i64{2} * kMaxPackBlocks * kPackSlotPacks * kPackLines : 0;
}

/// The symmetric buffer of one AllReduce. Every rank carves the same.
struct AllReduceLayout {
  Place<u64> push_lines;       ///< [2][num_ranks][kMaxPushBlocks][kPushThreads][kLinesPerVector]
  Place<Vec16> pack_lines;     ///< [2][kMaxPackBlocks][kPackSlotGroups][kPackLines][kPackGroup]
  Place<u8> stream_staging;    ///< [kStreamSlots][num_ranks - 1][kMaxStagedBlocks][stream_slot_bytes]
  Place<u64> stream_flags;     ///< [kMaxStagedBlocks][num_ranks]
  Place<u8> two_shot_staging;  ///< [kMaxStagedBlocks][slot_bytes]
  Place<u8> two_shot_results;  ///< [kMaxStagedBlocks][slot_bytes]
  Place<u64> staged_flags;     ///< [kMaxStagedBlocks][num_ranks]: "my chunk is staged"
  Place<u64> reduced_flags;    ///< [kMaxStagedBlocks][num_ranks]: "my shard is in your results"
  i64 total_bytes = 0;

  MOELINK_DEVICE static constexpr AllReduceLayout of(const AllReduceSpec& spec) {
    AllReduceLayout layout;
    Carver carver;
    const i64 slots_bytes = static_cast<i64>(kMaxStagedBlocks) * spec.slot_bytes;
    const i64 num_flags = static_cast<i64>(kMaxStagedBlocks) * spec.num_ranks;
    layout.push_lines = carver.take<u64>(i64{2} * spec.num_ranks * kMaxPushBlocks * kPushThreads * kLinesPerVector);
    layout.pack_lines = carver.take<Vec16>(num_pack_lines(spec.num_ranks));
    layout.stream_staging = carver.take<u8>(stream_staging_bytes(spec.num_ranks));
    layout.stream_flags = carver.take<u64>(num_flags);
    layout.two_shot_staging = carver.take<u8>(slots_bytes);
    layout.two_shot_results = carver.take<u8>(slots_bytes);
    layout.staged_flags = carver.take<u64>(num_flags);
    layout.reduced_flags = carver.take<u64>(num_flags);
    layout.total_bytes = carver.total_bytes();
    return layout;
  }
};

}  // namespace moelink

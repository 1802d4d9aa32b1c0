// All-reduce as a stream: middle sizes, one trip; and all larger ones of two ranks, for whom two shots would move no
// less. Protocol and reuse argument: docs/all-reduce.md, "Stream".
//
//   The warps of a block have three roles, so that none waits for what another could do meanwhile:
//   1. Warps that send, each on its own, step by step: they wait until the signals of the step kStreamAhead before have
//      been seen, store their part of the block's chunk into the slot of the step's epoch at every other rank, and say
//      so in the block's scratch.
//   2. One warp that signals: when all of them have stored another step, or more, it releases the flag of the last at
//      every other rank. A release lasts until all that was stored has arrived.
//   3. Warps that sum, step by step: they wait for every other rank's flag, and until the chunk of this rank has been
//      sent (the output may be the input), say so, add the chunk from input and slots in rank order, store the sum.
//   On the host one thread takes the roles in turns.
//
// Memory: slots [kStreamSlots][num_ranks - 1][kMaxStagedBlocks][stream_slot_bytes], flags [kMaxStagedBlocks][num_ranks]
// in the symmetric buffer; one private epoch per block; StreamScratch in the block's scratch.
// Ordering: what a warp has stored goes from its lanes to one (warp barrier), from that to the warp that signals
// (release and acquire in the block), and from there to other ranks (at system scope).
#pragma once

#include "moelink/device/all_reduce/chunk.cuh"
#include "moelink/device/all_reduce/message.cuh"
#include "moelink/device/all_reduce/signals.cuh"
#include "moelink/device/all_reduce/sum.cuh"
#include "moelink/device/exec/block_parts.cuh"
#include "moelink/device/exec/spec.cuh"
#include "moelink/device/primitives/warp.cuh"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {

/// More ranks than registers suffice for, if what is done for each is not done in a loop.
template <class S>
inline constexpr bool kHasManyRanks = false;
template <AllReduceSpec S>
inline constexpr bool kHasManyRanks<Static<S>> = S.num_ranks > 8;

/// The roles of one call, for the threads of a block that take them.
template <Element E, class S, class Block>
class StreamRoles {
 public:
  /// By the whole block, which then has the scratch ready.
  MOELINK_DEVICE StreamRoles(const Block& ex, S spec, const AllReduceKernelArgs& args)
      : spec_(spec),
        args_(args),
        layout_(AllReduceLayout::of(spec())),
        slot_bytes_(stream_slot_bytes(spec().num_ranks)),
        input_(static_cast<const u8*>(args.input), args.num_elements, E),
        output_(static_cast<u8*>(args.output), args.num_elements, E),
        epochs_(ex, args, AllReduceEpochs::kStream),
        scratch_(*static_cast<StreamScratch*>(ex.scratch())) {
    for (int warp = ex.thread(); warp < kSenderWarps; warp += ex.num_threads()) {
      scratch_.stored[warp] = 0;
    }
    if (ex.thread() == 0) {
      scratch_.seen = 0;
    }
    ex.sync_block();
  }

  /// By the whole block.
  MOELINK_DEVICE void leave() const { epochs_.keep(args_.num_steps); }

  /// False, for every lane of the warp, if there was a fault: then leave.
  template <class Exec>
  MOELINK_DEVICE bool send(const Exec& ex, i64 number) const {
    if (number >= kStreamAhead && !wait_for_words(ex, &scratch_.seen, 1, number - kStreamAhead + 1)) {
      return false;
    }
    const Chunk chunk = chunk_of(ex, args_, input_.num_vectors(), number);
    const i64 num_whole = num_whole_in(chunk, input_.num_whole_vectors());
    const Vec16* own = input_.whole_vectors() + chunk.first_vector;
    const u64 epoch = epochs_.step(number).epoch;
    store_at_others<kBatch>(ex, epoch, 0, num_whole, [&](i64 vector) { return own[vector]; });
    store_at_others<1>(ex, epoch, num_whole, chunk.num_vectors,
                       [&](i64 vector) { return input_.load(chunk.first_vector + vector); });
    ex.sync_warp();
    if (ex.lane() == 0) {
      st_release_block(scratch_.stored + ex.warp(), static_cast<u64>(number + 1));
    }
    return true;
  }

  /// By one warp, when `signalled` steps have been signalled: of how many that is true afterwards. As many if there was
  /// a fault: then leave.
  template <class Exec>
  MOELINK_DEVICE i64 signal(const Exec& ex, i64 signalled) const {
    if (!wait_for_words(ex, scratch_.stored, kSenderWarps, signalled + 1)) {
      return signalled;
    }
    u32 least = 0xffffffffU;
    for (int warp = ex.lane(); warp < kSenderWarps; warp += Exec::kWarpSize) {
      least = min_of(least, static_cast<u32>(ld_acquire_block(scratch_.stored + warp)));
    }
    const i64 stored = static_cast<i64>(~warp_max(ex, ~least));
    signal_ranks(ex, spec_, args_, layout_.stream_flags, epochs_.step(stored - 1));
    return stored;
  }

  /// False, for every thread of the role, if there was a fault: then leave.
  template <class Exec>
  MOELINK_DEVICE bool sum(const Exec& ex, i64 number) const {
    const Step step = epochs_.step(number);
    const bool is_sent = wait_for_words(ex, scratch_.stored, kSenderWarps, number + 1);
    const bool is_here = wait_for_own_share_of_ranks(ex, spec_, args_, layout_.stream_flags, step, kPhase);
    if (ex.sync_block_or(!(is_sent & is_here))) {
      return false;
    }
    if (ex.thread() == 0) {
      st_release_block(&scratch_.seen, static_cast<u64>(number + 1));
    }
    const Chunk chunk = chunk_of(ex, args_, input_.num_vectors(), number);
    const i64 num_whole = num_whole_in(chunk, min_of(input_.num_whole_vectors(), output_.num_whole_vectors()));
    const Vec16* own = input_.whole_vectors() + chunk.first_vector;
    add_all<kBatch>(
        ex, step.epoch, 0, num_whole,
        [&](bool is_own, const Vec16* slot, i64 vector) { return (is_own ? own : slot)[vector]; },
        [&](i64 vector, const Vec16& value) { output_.store_whole(chunk.first_vector + vector, value); });
    add_all<1>(
        ex, step.epoch, num_whole, chunk.num_vectors,
        [&](bool is_own, const Vec16* slot, i64 vector) {
          return is_own ? input_.load(chunk.first_vector + vector) : slot[vector];
        },
        [&](i64 vector, const Vec16& value) { output_.store(chunk.first_vector + vector, value); });
    return true;
  }

 private:
  static constexpr FaultPhase kPhase = FaultPhase::all_reduce_stream;
  /// Vectors that a thread moves at once. Chunks of more than two ranks, for which the plan takes this algorithm, are
  /// so short that it has one.
  static constexpr int kBatch = kRankBatch<S> >= 4 ? kRankBatch<S> : 1;
  static constexpr int kRanksUnderWay = kHasManyRanks<S> ? 4 : 8;  ///< a thread's loads, together
  static constexpr int kSenderWarps = Block::kIsDevice ? kStreamSenders / Block::kWarpSize : 1;

  /// Vectors of a chunk, from its first, that are among the first so many of the message.
  MOELINK_DEVICE static i64 num_whole_in(const Chunk& chunk, i64 num_whole) {
    return max_of<i64>(0, min_of(chunk.num_vectors, num_whole - chunk.first_vector));
  }

  /// Where `holder` has what `source` sends in a step.
  template <class Exec>
  MOELINK_DEVICE Vec16* slot_of(const Exec& ex, int holder, int source, u64 epoch) const {
    const int others = spec_().num_ranks - 1;
    const i64 slot = static_cast<i64>(epoch % kStreamSlots) * others + (source > holder ? source - 1 : source);
    const i64 bytes = (slot * kMaxStagedBlocks + ex.block()) * slot_bytes_;
    return args_.window.template at<Vec16>(holder, layout_.stream_staging.offset_bytes + bytes, spec_().num_ranks);
  }

  /// By a warp: waits until each of the words, which only grow, has come to `value`. By then another role has come so
  /// far; what that waits for has a deadline of its own, whose message names a rank: this one's is later.
  template <class Exec>
  MOELINK_DEVICE bool wait_for_words(const Exec& ex, const u64* words, int count, i64 value) const {
    const WaitFor what{.phase = kPhase, .epoch = epochs_.step(value - 1).epoch, .expected = static_cast<u64>(value)};
    FaultContext patient = args_.fault;
    patient.timeout_ns *= 2;
    bool failed = false;
    for (int i = ex.lane(); i < count; i += Exec::kWarpSize) {
      failed = failed | !wait_until_reached_block(patient, what, words + i);
    }
    ex.sync_warp();
    return warp_sum(ex, failed ? 1 : 0) == 0;
  }

  /// Vectors [begin, end) of a chunk, as load(vector) has them, into every other rank's slot.
  template <int kBatch, class Exec, class Load>
  MOELINK_DEVICE void store_at_others(const Exec& ex, u64 epoch, i64 begin, i64 end, Load&& load) const {
    for_each_batch<kBatch>(ex, begin, end, [&](auto batch, i64 first, i64 stride) {
      Vec16 values[batch()];
      MOELINK_UNROLL
      for (int j = 0; j < batch(); ++j) {
        values[j] = load(first + j * stride);
      }
      const auto store_at = [&](int turn) {
        // Start with the next rank, so that not all ranks store to rank 0 first.
        const int peer = (args_.window.rank + turn) % spec_().num_ranks;
        Vec16* slot = slot_of(ex, peer, args_.window.rank, epoch);
        MOELINK_UNROLL
        for (int j = 0; j < batch(); ++j) {
          slot[first + j * stride] = values[j];
        }
      };
      if constexpr (kHasManyRanks<S>) {
        MOELINK_NO_UNROLL
        for (int turn = 1; turn < spec_().num_ranks; ++turn) {
          store_at(turn);
        }
      } else {
        for (int turn = 1; turn < spec_().num_ranks; ++turn) {
          store_at(turn);
        }
      }
    });
  }

  /// Vectors [begin, end) of a chunk: load(is_own, slot, vector) of every rank, in rank order.
  template <int kBatch, class Exec, class Load, class Store>
  MOELINK_DEVICE void add_all(const Exec& ex, u64 epoch, i64 begin, i64 end, Load&& load, Store&& store) const {
    for_each_batch<kBatch>(ex, begin, end, [&](auto batch, i64 first, i64 stride) {
      VectorSum<E> sums[batch()];
      MOELINK_NO_UNROLL
      for (int rank = 0; rank < spec_().num_ranks; rank += kRanksUnderWay) {
        MOELINK_UNROLL
        for (int i = 0; i < kRanksUnderWay && rank + i < spec_().num_ranks; ++i) {
          const bool is_own = rank + i == args_.window.rank;
          const Vec16* slot = slot_of(ex, args_.window.rank, rank + i, epoch);
          Vec16 values[batch()];
          MOELINK_UNROLL
          for (int j = 0; j < batch(); ++j) {
            values[j] = load(is_own, slot, first + j * stride);
          }
          MOELINK_UNROLL
          for (int j = 0; j < batch(); ++j) {
            rank + i == 0 ? sums[j].start(values[j]) : sums[j].add(values[j]);
          }
        }
      }
      MOELINK_UNROLL
      for (int j = 0; j < batch(); ++j) {
        store(first + j * stride, sums[j].rounded());
      }
    });
  }

  S spec_;
  const AllReduceKernelArgs& args_;
  AllReduceLayout layout_;
  i64 slot_bytes_;
  Message<const u8> input_;
  Message<u8> output_;
  BlockEpochs<Block> epochs_;
  StreamScratch& scratch_;
};

struct AllReduceStream {
  static constexpr const char* kName = "AllReduceStream";
  static constexpr const char* kHeader = "moelink/device/all_reduce/stream.cuh";
  using Spec = AllReduceSpec;
  using Args = AllReduceKernelArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) { run_typed<element()>(ex, spec, args); });
  }

 private:
  template <Element E, class Exec, class S>
  MOELINK_DEVICE static void run_typed(const Exec& ex, S spec, const Args& args) {
    const StreamRoles<E, S, Exec> roles(ex, spec, args);
    const i64 steps = args.num_steps;
    bool goes_on = true;
#if MOELINK_ON_DEVICE
    using Senders = PartExec<0, kStreamSenders, 1>;
    using Signaller = PartExec<kStreamSenders, kStreamSignallers, 2>;
    using Summers = PartExec<kStreamSenders + kStreamSignallers, kStreamSummers, 3>;
    if (Senders::is_this()) {
      for (i64 step = 0; step < steps && goes_on; ++step) {
        goes_on = roles.send(Senders{}, step);
      }
    } else if (Signaller::is_this()) {
      for (i64 signalled = 0; signalled < steps && goes_on;) {
        const i64 before = signalled;
        signalled = roles.signal(Signaller{}, signalled);
        goes_on = signalled != before;
      }
    } else {
      for (i64 step = 0; step < steps && goes_on; ++step) {
        goes_on = roles.sum(Summers{}, step);
      }
    }
#else
    i64 sent = 0;
    for (i64 step = 0; step < steps && goes_on; ++step) {
      for (; sent < min_of(steps, step + kStreamAhead) && goes_on; ++sent) {
        goes_on = roles.send(ex, sent) && roles.signal(ex, sent) > sent;
      }
      goes_on = goes_on && roles.sum(ex, step);
    }
#endif
    roles.leave();
  }
};

}  // namespace moelink

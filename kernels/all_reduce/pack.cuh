// All-reduce of two ranks by wide lines: messages too long for push, one trip, no flags. Protocol, reuse argument and
// what makes a line of 16 bytes one access: docs/all-reduce.md, "Pack".
//
//   1. The threads of a block take the packs of its chunk, three vectors each, and store them as four lines {12 bytes
//      of data, tag} at the other rank. One thread renews one pack of the same slot, of those past the call's own.
//   2. They poll their own four lines until these carry the tag of this epoch, add in rank order, store the sums. A
//      line of this epoch and another length is a fault.
//   3. The block stores its next epoch.
//
// Memory: lines [2][kMaxPackBlocks][kPackSlotGroups][kPackLines][kPackGroup] in the symmetric buffer; one private epoch
// per block.
// Ordering: a wide line is single-copy atomic (NOTE [wide lines]), so data and tag arrive together; nothing else
// crosses.
#pragma once

#include "moelink/device/all_reduce/chunk.cuh"
#include "moelink/device/all_reduce/message.cuh"
#include "moelink/device/all_reduce/signals.cuh"
#include "moelink/device/all_reduce/sum.cuh"
#include "moelink/device/exec/spec.cuh"
#include "moelink/device/ptx/line.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {

/// Three vectors, and the four lines in which they travel.
struct Pack {
  Vec16 vectors[kPackVectors];
};
struct PackLines {
  Vec16 lines[kPackLines];

  MOELINK_DEVICE static PackLines of(const Pack& pack, u32 tag) {
    const Vec16 &a = pack.vectors[0], &b = pack.vectors[1], &c = pack.vectors[2];
    return {{{a.x, a.y, a.z, tag}, {a.w, b.x, b.y, tag}, {b.z, b.w, c.x, tag}, {c.y, c.z, c.w, tag}}};
  }
  [[nodiscard]] MOELINK_DEVICE Pack pack() const {
    const Vec16 &a = lines[0], &b = lines[1], &c = lines[2], &d = lines[3];
    return {{{a.x, a.y, a.z, b.x}, {b.y, b.z, c.x, c.y}, {c.z, d.x, d.y, d.z}}};
  }
  /// `tag`, if all lines carry it; else the tag of one that does not.
  [[nodiscard]] MOELINK_DEVICE u32 found_tag(u32 tag) const {
    u32 found = tag;
    MOELINK_UNROLL
    for (int j = 0; j < kPackLines; ++j) {
      found = lines[j].w != tag ? lines[j].w : found;
    }
    return found;
  }
};

struct AllReducePack {
  static constexpr const char* kName = "AllReducePack";
  static constexpr const char* kHeader = "moelink/device/all_reduce/pack.cuh";
  using Spec = AllReduceSpec;
  using Args = AllReduceKernelArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) { run_typed<element()>(ex, spec, args); });
  }

 private:
  template <Element E, class Exec, class S>
  MOELINK_DEVICE static void run_typed(const Exec& ex, S spec, const Args& args) {
    const BlockEpochs epochs(ex, args, AllReduceEpochs::kPack);
    const u64 epoch = epochs.step(0).epoch;
    const Message<const u8> input(static_cast<const u8*>(args.input), args.num_elements, E);
    const Message<u8> output(static_cast<u8*>(args.output), args.num_elements, E);
    const Chunk chunk = chunk_of(ex, args, input.num_vectors(), 0);
    const int num_packs = packs_of(chunk.num_vectors);

    if (spec().num_ranks == 2) {
      const u32 tag = LineTag::of(epoch, args.length_key);
      Vec16* slot = slot_of(ex, spec, args, 1 - args.window.rank, epoch);
      for (int pack = ex.thread(); pack < num_packs; pack += ex.num_threads()) {
        store_lines(slot, pack, PackLines::of(load(input, chunk, pack), tag));
      }
      renew_one_pack(ex, slot, num_packs, epoch, tag);
    }
    bool arrived = true;
    for (int pack = ex.thread(); pack < num_packs && arrived; pack += ex.num_threads()) {
      const Pack own = load(input, chunk, pack);
      PackLines theirs = {};
      if (spec().num_ranks == 2) {
        arrived = wait_for_lines(ex, spec, args, epoch, pack, theirs);
      }
      if (arrived) {
        store(output, chunk, pack, spec().num_ranks == 2 ? sum_of<E>(args.window.rank, own, theirs.pack()) : own);
      }
    }
    epochs.keep(1);
  }

  /// Packs of the first `num_vectors` of a chunk: as many as have their first vector there.
  MOELINK_DEVICE static int packs_of(i64 num_vectors) {
    const int vectors = static_cast<int>(num_vectors);
    return vectors / kPackGroupVectors * kPackGroup + min_of(vectors % kPackGroupVectors, kPackGroup);
  }

  /// The message's vector that is a pack's first; the next two are kPackGroup apart.
  MOELINK_DEVICE static i64 vector_of(const Chunk& chunk, int pack) {
    return chunk.first_vector + pack / kPackGroup * kPackGroupVectors + pack % kPackGroup;
  }
  /// Whether all three are among the first `num_whole` of the message.
  MOELINK_DEVICE static bool is_whole(i64 first, i64 num_whole) {
    return first + (kPackVectors - 1) * kPackGroup < num_whole;
  }
  MOELINK_DEVICE static Pack load(const Message<const u8>& input, const Chunk& chunk, int pack) {
    Pack loaded;
    const i64 first = vector_of(chunk, pack);
    if (is_whole(first, input.num_whole_vectors())) {
      MOELINK_UNROLL
      for (int j = 0; j < kPackVectors; ++j) {
        loaded.vectors[j] = input.whole_vectors()[first + j * kPackGroup];
      }
      return loaded;
    }
    MOELINK_UNROLL
    for (int j = 0; j < kPackVectors; ++j) {
      loaded.vectors[j] = input.load(first + j * kPackGroup);
    }
    return loaded;
  }
  MOELINK_DEVICE static void store(const Message<u8>& output, const Chunk& chunk, int pack, const Pack& sums) {
    const i64 first = vector_of(chunk, pack);
    if (is_whole(first, output.num_whole_vectors())) {
      MOELINK_UNROLL
      for (int j = 0; j < kPackVectors; ++j) {
        output.store_whole(first + j * kPackGroup, sums.vectors[j]);
      }
      return;
    }
    MOELINK_UNROLL
    for (int j = 0; j < kPackVectors; ++j) {
      output.store(first + j * kPackGroup, sums.vectors[j]);
    }
  }

  /// This block's lines of an epoch, in the memory of the rank that reads them.
  template <class Exec, class S>
  MOELINK_DEVICE static Vec16* slot_of(const Exec& ex, S spec, const Args& args, int reader, u64 epoch) {
    const i64 slot = static_cast<i64>(epoch & 1U) * kMaxPackBlocks + ex.block();
    return args.window.template at<Vec16>(reader, AllReduceLayout::of(spec()).pack_lines.offset_bytes,
                                          spec().num_ranks) +
           slot * kPackSlotPacks * kPackLines;
  }
  MOELINK_DEVICE static int line_of(int pack, int j) {
    return (pack / kPackGroup * kPackLines + j) * kPackGroup + pack % kPackGroup;
  }
  MOELINK_DEVICE static void store_lines(Vec16* slot, int pack, const PackLines& packed) {
    MOELINK_UNROLL
    for (int j = 0; j < kPackLines; ++j) {
      st_wide_line_sys(slot + line_of(pack, j), packed.lines[j]);
    }
  }

  /// Gives one pack of this call's slot, of those past its own, its tag; another one in the next call of this parity. So
  /// no tag stays so long that its epoch bits come again.
  template <class Exec>
  MOELINK_DEVICE static void renew_one_pack(const Exec& ex, Vec16* slot, int num_packs, u64 epoch, u32 tag) {
    const int pack = static_cast<int>((epoch >> 1U) % kPackSlotPacks);
    if (ex.thread() == ex.num_threads() - 1 && pack >= num_packs) {
      store_lines(slot, pack, PackLines::of({}, tag));
    }
  }

  /// False if there was a fault.
  template <class Exec, class S>
  MOELINK_DEVICE static bool wait_for_lines(const Exec& ex, S spec, const Args& args, u64 epoch, int pack,
                                            PackLines& theirs) {
    const int other = 1 - args.window.rank;
    const u32 tag = LineTag::of(epoch, args.length_key);
    const Vec16* slot = slot_of(ex, spec, args, args.window.rank, epoch);
    const WaitFor what{.phase = FaultPhase::all_reduce_pack, .peer = other, .epoch = epoch, .expected = epoch};
    u32 found = 0;
    const bool arrived = wait_until(args.fault, what, [&](u64& seen) {
      MOELINK_UNROLL
      for (int j = 0; j < kPackLines; ++j) {
        theirs.lines[j] = ld_wide_line_sys(slot + line_of(pack, j));
      }
      found = theirs.found_tag(tag);
      seen = LineTag::epoch_of(found, epoch);
      return (found == tag) | LineTag::differs_in_length(found, tag);
    });
    if (arrived && found != tag) {
      report_length_mismatch(args, what);
      return false;
    }
    return arrived;
  }

  /// Word by word: of a choice between two vectors the compiler makes one between their addresses, in local memory.
  MOELINK_DEVICE static Vec16 chosen(bool is_first, const Vec16& first, const Vec16& second) {
    return {is_first ? first.x : second.x, is_first ? first.y : second.y, is_first ? first.z : second.z,
            is_first ? first.w : second.w};
  }

  template <Element E>
  MOELINK_DEVICE static Pack sum_of(int rank, const Pack& own, const Pack& theirs) {
    Pack sums;
    MOELINK_UNROLL
    for (int j = 0; j < kPackVectors; ++j) {
      VectorSum<E> sum;
      sum.start(chosen(rank == 0, own.vectors[j], theirs.vectors[j]));
      sum.add(chosen(rank == 0, theirs.vectors[j], own.vectors[j]));
      sums.vectors[j] = sum.rounded();
    }
    return sums;
  }
};

}  // namespace moelink

// Headers of the nvlink dispatch: what every rank tells every rank before any row (protocol/nvlink_moe.hpp).
//
// A header is a run of lines {value, tag of the epoch}, stored and polled two at a time. A line is read whole, so that
// the tag vouches for its value. What else a header says: NOTE [lines and earlier launches] (ptx/line.cuh). Headers are
// small and wanted early: all threads of a block poll, each its own lines, and all blocks of a launch read them all,
// which is cheaper than telling one another.
#pragma once

#include "moelink/device/moe/nvlink_epoch.cuh"
#include "moelink/device/moe/remotes.cuh"
#include "moelink/device/ptx/line.cuh"
#include "moelink/device/sync/tagged_word.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/nvlink_scratch.hpp"

namespace moelink {

/// The pairs of lines of rank `source`'s header at `holder`. Of a remote holder: where this rank packs them.
template <class S>
MOELINK_DEVICE WordPair* header_lines(S spec, const NvlinkDispatchArgs& args, i32 holder, i32 source) {
  const Remotes<S> remotes(spec, args.remote);
  if (remotes.has(holder)) {
    return reinterpret_cast<WordPair*>(remotes.packed(remotes.number(holder)) +
                                       args.remote.send_layout.dispatch_header.offset_bytes);
  }
  return args.window.template at<WordPair>(holder, args.layout.dispatch_headers.offset_bytes, spec().num_ranks) +
         static_cast<i64>(source) * (args.shape.header_words() / 2);
}

/// Pairs of lines in front of the counts.
inline constexpr i32 kHeaderHeadPairs = DispatchHeader::kCounts / 2;
static_assert(DispatchHeader::kCounts % 2 == 0 && DispatchHeader::kFormat % 2 == 0);

/// Pairs of lines that `source` sends: only member 0 of a group sends counts.
template <class S>
MOELINK_DEVICE i32 header_pairs(S spec, i32 source) {
  const i32 counts = source % spec().tp_size == 0 ? SourceScratch::row_stride(spec()) : 0;
  return (DispatchHeader::kCounts + counts) / 2;
}

/// By one block: words [2 * first, 2 * end) of this rank's header to every rank; value(destination, word) gives them.
template <class Exec, class S, class Value>
MOELINK_DEVICE void send_header_pairs(const Exec& ex, S spec, const NvlinkDispatchArgs& args, u64 epoch, i32 first,
                                      i32 end, const Value& value) {
  const i32 rank = args.window.rank;
  const i32 pairs = end - first;
  const u32 tag = tag_of(epoch);
  MOELINK_NO_UNROLL
  for (i32 i = ex.thread(); i < spec().num_ranks * pairs; i += ex.num_threads()) {
    // The next rank first, so that not all ranks store to rank 0 at once.
    const i32 destination = (rank + 1 + i / pairs) % spec().num_ranks;
    const i32 pair = first + i % pairs;
    st_line_sys_pair(header_lines(spec, args, destination, rank) + pair,
                     {tagged(value(destination, 2 * pair), tag), tagged(value(destination, 2 * pair + 1), tag)});
  }
}

/// By one block: all of this rank's header to every rank, counts included.
template <class Exec, class S, class Value>
MOELINK_DEVICE void send_headers(const Exec& ex, S spec, const NvlinkDispatchArgs& args, u64 epoch,
                                 const Value& value) {
  send_header_pairs(ex, spec, args, epoch, 0, header_pairs(spec, args.window.rank), value);
}

/// By one block, a block barrier after headers were stored: those that lie packed for remotes are handed over.
template <class Exec, class S>
MOELINK_DEVICE void put_remote_headers(const Exec& ex, S spec, const NvlinkDispatchArgs& args, u64 epoch) {
  const i64 size_bytes = header_pairs(spec, args.window.rank) * static_cast<i64>(sizeof(WordPair));
  Remotes<S>(spec, args.remote).put_headers(ex, args.local.fault, kDispatchPuts, epoch, size_bytes);
}

/// By one block of a launch that receives: stores the headers that remotes put, as they come, where a peer would have,
/// so that all blocks look there and one alone at what may be the host's memory. False, in some thread, after a fault:
/// it leaves; the others notice.
template <class Exec, class S>
MOELINK_DEVICE bool relay_remote_headers(const Exec& ex, S spec, const NvlinkDispatchArgs& args, u64 epoch) {
  if (!spec().has_remotes) return true;
  const Remotes<S> remotes(spec, args.remote);
  const i32 pairs = header_pairs(spec, args.window.rank);
  // A warp for each remote: one look for all of its lanes.
  MOELINK_NO_UNROLL
  for (i32 n = ex.warp(); n < args.remote.num_remotes; n += ex.num_warps()) {
    const i32 source = args.remote.sources[args.remote.num_peers + n];
    if (!remotes.wait_for_host(args.local.fault, kDispatchPuts, source, kHeaderChunk, epoch)) return false;
    const u8* arrived =
        remotes.arrived(remotes.number(source)) + args.remote.receive_layout.dispatch_header.offset_bytes;
    for (i32 pair = ex.lane(); pair < pairs; pair += Exec::kWarpSize) {
      st_line_sys_pair(header_lines(spec, args, args.window.rank, source) + pair,
                       ld_line_sys_pair(reinterpret_cast<const WordPair*>(arrived) + pair));
    }
  }
  return true;
}

/// By one thread: one word of this rank's header at one rank, for whoever knows no more than that yet.
template <class S>
MOELINK_DEVICE void send_header_word(S spec, const NvlinkDispatchArgs& args, i32 destination, i32 word, u32 value,
                                     u64 epoch) {
  WordPair* pair = header_lines(spec, args, destination, args.window.rank) + word / 2;
  st_line_sys(word % 2 == 0 ? &pair->first : &pair->second, tagged(value, tag_of(epoch)));
}

/// What the headers say, in block scratch.
template <class S>
class SourceHeaders {
 public:
  MOELINK_DEVICE SourceHeaders(S spec, void* scratch, i32 first_byte)
      : spec_(spec),
        heads_(reinterpret_cast<u32*>(static_cast<u8*>(scratch) + SourceScratch(spec(), first_byte).heads)),
        counts_(reinterpret_cast<u32*>(static_cast<u8*>(scratch) + SourceScratch(spec(), first_byte).rows)) {}

  [[nodiscard]] MOELINK_DEVICE i32 num_slots(i32 group) const {
    return static_cast<i32>(head(group, DispatchHeader::kNumSlots));
  }
  /// At least as many as there are slots.
  [[nodiscard]] MOELINK_DEVICE i32 num_tokens(i32 group) const {
    return max_of(static_cast<i32>(head(group, DispatchHeader::kNumTokens)), num_slots(group));
  }
  [[nodiscard]] MOELINK_DEVICE WireFormat format(i32 group) const {
    return WireFormat::unpacked(head(group, DispatchHeader::kFormat));
  }
  /// Entries of each group and local expert, [groups][SourceScratch::row_stride()], until places are made of them.
  [[nodiscard]] MOELINK_DEVICE u32* counts() const { return counts_; }

  /// By the block: waits for the headers of all ranks and checks them. False, for all threads, after a fault. Counts
  /// that cannot be are clamped; `clamped` is how many this thread met.
  template <class Exec>
  [[nodiscard]] MOELINK_DEVICE bool wait(const Exec& ex, const NvlinkDispatchArgs& args, u64 epoch, u32& clamped) {
    bool failed = false;
    const i32 pairs = kHeaderHeadPairs + SourceScratch::row_stride(spec_()) / 2;
    // A call that reuses its routing has no counts.
    const i32 end = args.format.reuse_routing != 0 ? kHeaderHeadPairs : pairs;
    MOELINK_NO_UNROLL
    for (i32 i = ex.thread(); i < spec_().num_ranks * pairs && !failed; i += ex.num_threads()) {
      const i32 source = i / pairs;
      const i32 pair = i % pairs;
      if (pair >= min_of(end, header_pairs(spec_, source))) continue;
      WordPair words{};
      failed = !wait_for_pair(args, epoch, source, pair, words);
      if (failed) break;
      clamped += store(args, source, 2 * pair, data_of(words.first));
      clamped += store(args, source, 2 * pair + 1, data_of(words.second));
      // Of sources of one rank nothing else has to agree.
      if (spec_().tp_size == 1 && pair == DispatchHeader::kFormat / 2) {
        failed = !fits(args, epoch, source, WireFormat::unpacked(data_of(words.first)));
      }
    }
    if (ex.sync_block_or(failed)) return false;
    return spec_().tp_size == 1 || agree(ex, args, epoch);
  }

 private:
  [[nodiscard]] MOELINK_DEVICE u32& head_of_rank(i32 source, i32 word) const {
    return heads_[source * DispatchHeader::kCounts + word];
  }
  [[nodiscard]] MOELINK_DEVICE u32 head(i32 group, i32 word) const {
    return head_of_rank(group * spec_().tp_size, word);
  }

  MOELINK_DEVICE bool wait_for_pair(const NvlinkDispatchArgs& args, u64 epoch, i32 source, i32 pair,
                                    WordPair& words) const {
    const u32 tag = tag_of(epoch);
    const WordPair* line = header_lines(spec_, args, args.window.rank, source) + pair;
    const WaitFor what{.phase = FaultPhase::dispatch_receive, .peer = source, .epoch = epoch, .expected = tag};
    return wait_until(args.local.fault, what, [&](u64& seen) {
      words = ld_line_sys_pair(line);
      seen = words.first >> 32U;
      return carry(words, tag);
    });
  }

  /// Keeps one word; 1 if it had to be clamped.
  MOELINK_DEVICE u32 store(const NvlinkDispatchArgs& args, i32 source, i32 word, u32 value) const {
    u32 limit = ~u32{0};
    if (word == DispatchHeader::kNumSlots || word == DispatchHeader::kNumTokens) {
      limit = static_cast<u32>(args.shape.max_tokens);
    } else if (word >= DispatchHeader::kCounts) {
      limit = static_cast<u32>(args.shape.max_tokens * spec_().top_k);
    }
    const u32 kept = min_of(value, limit);
    if (word < DispatchHeader::kCounts) {
      head_of_rank(source, word) = kept;
    } else {
      const i32 group = source / spec_().tp_size;
      counts_[group * SourceScratch::row_stride(spec_()) + word - DispatchHeader::kCounts] = kept;
    }
    return kept != value ? 1 : 0;
  }

  /// Whether a rank's rows come as this call can take them; if not, that is a fault which names the rank.
  MOELINK_DEVICE bool fits(const NvlinkDispatchArgs& args, u64 epoch, i32 source, const WireFormat& format) const {
    WireFormat fitting = format;
    fitting.payload = args.format.payload;
    fitting.reuse_routing = args.format.reuse_routing;
    if (!format.valid()) {  // in one of the two, or both
      fitting.parts = 1;
      fitting.log2_slots_per_flag = 0;
    }
    if (const Remotes<S> remotes(spec_, args.remote); remotes.has(source)) {
      fitting.log2_slots_per_flag = static_cast<u8>(remotes.log2_slots_per_chunk());
      fitting.parts = 1;
    }
    return !differ(args, epoch, source, fitting.packed(), format.packed());
  }

  /// By the block: whether every rank's call fits this one's and those of its group; if not, that is a fault which names
  /// the rank.
  template <class Exec>
  MOELINK_DEVICE bool agree(const Exec& ex, const NvlinkDispatchArgs& args, u64 epoch) const {
    bool differs = false;
    MOELINK_NO_UNROLL
    for (i32 source = ex.thread(); source < spec_().num_ranks && !differs; source += ex.num_threads()) {
      const i32 first_member = source / spec_().tp_size * spec_().tp_size;
      differs = !fits(args, epoch, source, WireFormat::unpacked(head_of_rank(source, DispatchHeader::kFormat)));
      for (const i32 word : {DispatchHeader::kNumTokens, DispatchHeader::kFormat, DispatchHeader::kHash}) {
        // Between this rank and another member, the other one is named.
        const i32 peer = source == args.window.rank ? first_member : source;
        const i32 fits = peer == source ? first_member : source;
        differs = differs || differ(args, epoch, peer, head_of_rank(fits, word), head_of_rank(peer, word));
      }
    }
    return !ex.sync_block_or(differs);
  }
  MOELINK_DEVICE static bool differ(const NvlinkDispatchArgs& args, u64 epoch, i32 source, u32 expected, u32 seen) {
    if (expected == seen) return false;
    const WaitFor what{.phase = FaultPhase::dispatch_receive, .peer = source, .epoch = epoch, .expected = expected};
    report_fault(args.local.fault, FaultKind::mismatch, what, seen, 0);
    return true;
  }

  S spec_;
  u32* heads_;
  u32* counts_;
};

}  // namespace moelink

// Headers of the nvlink combine: what every rank tells every rank, always, however few partials travel: how many of its
// entries were dropped here, and of which type partials are (protocol/nvlink_moe.hpp, CombineHeader). By block 0. Lines
// carry their tags; what else a header says: NOTE [lines and earlier launches] (ptx/line.cuh).
#pragma once

#include "moelink/device/moe/partial_rows.cuh"
#include "moelink/device/moe/routing.cuh"
#include "moelink/device/ptx/line.cuh"
#include "moelink/device/sync/tagged_word.cuh"
#include "moelink/device/sync/wait_until.cuh"

namespace moelink {

/// Where `holder` reads what `sender` says: dropped entries and the type of partials, side by side. Of a remote
/// holder: where this rank packs it.
template <class S>
MOELINK_DEVICE WordPair* combine_header_of(S spec, const NvlinkCombineArgs& args, i32 holder, i32 sender) {
  static_assert(CombineHeader::kDropped == 0 && CombineHeader::kPartial == 1);
  const Remotes<S> remotes(spec, args.remote);
  if (remotes.has(holder)) {
    return reinterpret_cast<WordPair*>(remotes.packed(remotes.number(holder)) +
                                       args.remote.send_layout.combine_header.offset_bytes);
  }
  if (remotes.has(sender)) {
    return reinterpret_cast<WordPair*>(remotes.arrived(remotes.number(sender)) +
                                       args.remote.receive_layout.combine_header.offset_bytes);
  }
  u64* words = args.window.template at<u64>(holder, args.layout.combine_headers.offset_bytes, spec().num_ranks) +
               remotes.peer(sender) * CombineHeader::kWords;
  return reinterpret_cast<WordPair*>(words);
}

/// The partial rows that this rank packs for remotes.
template <class S>
MOELINK_DEVICE RemoteRows remote_partial_rows(S spec, const NvlinkCombineArgs& args, u64 epoch) {
  return {.phase = kCombinePuts,
          .epoch = epoch,
          .send_offset_bytes = args.remote.send_layout.partials.offset_bytes,
          .receive_offset_bytes = args.remote.receive_layout.partials.offset_bytes,
          .slot_bytes = remote_partial_bytes(spec),
          .num_slots = args.tables.num_received};
}

/// By block 0. A header also says that this rank's dispatch has read what the peer will overwrite.
template <class Exec, class S>
MOELINK_DEVICE void send_combine_headers(const Exec& ex, S spec, const NvlinkCombineArgs& args, u64 epoch) {
  const u32 tag = tag_of(epoch);
  for (i32 peer = ex.thread(); peer < spec().num_ranks; peer += ex.num_threads()) {
    if (peer == args.window.rank) continue;
    const u32 dropped = static_cast<u32>(args.tables.dropped[peer / spec().tp_size]);
    st_line_sys_pair(combine_header_of(spec, args, peer, args.window.rank),
                     {tagged(dropped, tag), tagged(static_cast<u32>(spec().partial), tag)});
  }
  if (!spec().has_remotes) return;
  ex.sync_block();
  const Remotes<S> remotes(spec, args.remote);
  remotes.put_headers(ex, args.fault, kCombinePuts, epoch, sizeof(WordPair));
}

/// By block 0: waits for every rank's header and reports what it says; and for every chunk of remotes, so that
/// nothing of this call is under way when the next one begins. False, in every thread: a fault.
template <class Exec, class S>
MOELINK_DEVICE bool receive_combine_headers(const Exec& ex, S spec, const NvlinkCombineArgs& args, u64 epoch) {
  const u32 tag = tag_of(epoch);
  const Remotes<S> remotes(spec, args.remote);
  u32 dropped = 0;
  bool failed = false;
  for (i32 peer = ex.thread(); peer < spec().num_ranks && !failed; peer += ex.num_threads()) {
    if (peer == args.window.rank) continue;
    WordPair header{};
    WaitFor what{.phase = FaultPhase::combine_receive, .peer = peer, .epoch = epoch, .expected = tag};
    if (remotes.has(peer)) {
      const i32 end = kFirstRowChunk + remotes.chunks_of(args.tables.num_sent[peer]);
      for (i32 chunk = kHeaderChunk; chunk < end && !failed; ++chunk) {
        failed = !remotes.wait(args.fault, kCombinePuts, peer, chunk, epoch);
      }
      if (failed) break;
    }
    failed = !wait_until(args.fault, what, [&](u64& seen) {
      header = ld_line_sys_pair(combine_header_of(spec, args, args.window.rank, peer));
      seen = header.first >> 32U;
      return carry(header, tag);
    });
    if (failed) break;
    dropped += data_of(header.first);
    if (data_of(header.second) == static_cast<u32>(spec().partial)) continue;
    what.expected = static_cast<u64>(spec().partial);
    report_fault(args.fault, FaultKind::mismatch, what, data_of(header.second), 0);
    failed = true;
  }
  failed = ex.sync_block_or(failed);
  report_block_sum(ex, &args.local.status->entries_dropped_by_peers, dropped, static_cast<u32*>(ex.scratch()));
  return !failed;
}

}  // namespace moelink

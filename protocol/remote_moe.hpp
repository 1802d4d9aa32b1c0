// What the p2p mode adds to the nvlink mode (nvlink_moe.hpp): where rows for and from remote ranks lie, and how chunks
// of them travel. The protocol, its ordering argument and the reuse argument of every region: docs/p2p.md.
//
// What a rank would store into a peer's memory it packs, for a remote, into a region of its own that looks the same,
// and chunks of that region are put into the remote's. A chunk is 2^log2_slots_per_chunk slots, or a header.
#pragma once

#include "moelink/protocol/carver.hpp"
#include "moelink/protocol/put_channel.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// Phases of puts.
inline constexpr u32 kDispatchPuts = 0;
inline constexpr u32 kCombinePuts = 1;
inline constexpr i32 kRowPhases = 2;
/// Chunk 0 of each phase is the header; chunk c of the slots is number c + 1.
inline constexpr i32 kHeaderChunk = 0;
inline constexpr i32 kFirstRowChunk = 1;
/// Regions of the channel.
inline constexpr i32 kSendRegion = 0;
inline constexpr i32 kReceiveRegion = 1;

/// How one rank reaches another. Exactly one of `peer` and `remote` is not -1.
struct RankRoute {
  i32 peer = -1;    ///< number among the ranks of the node, for ranks whose memory is mapped, and for the rank itself
  i32 remote = -1;  ///< number among the remotes: which part of the regions is for it
  i32 there = -1;   ///< remotes: which part of its receive region is for this rank
};

/// Row and scales of a slot begin at a multiple of this behind its record.
inline constexpr i64 kRemoteRowAlignmentBytes = 128;

/// One remote's part of a region. Slots and partial rows lie side by side at the pitch of the call's types, so that a
/// chunk is one run of bytes; the room is for the widest.
struct RemoteLayout {
  Place<u64> dispatch_header;
  Place<u8> slots;  ///< [max_tokens]: record, row, scales
  Place<u64> combine_header;
  Place<u8> partials;   ///< [max_tokens]
  i64 pitch_bytes = 0;  ///< from one remote's part to the next one's
};

/// The numbers that decide it: equal on all ranks.
struct RemoteShape {
  i64 dispatch_header_bytes = 0;
  i64 combine_header_bytes = 0;
  i64 slots_bytes = 0;     ///< of all slots of one source, the widest payload
  i64 partials_bytes = 0;  ///< likewise of partial rows

  /// What a remote puts: dispatch of the next call may overtake combine of this one, so that nothing is shared.
  [[nodiscard]] constexpr RemoteLayout receive_layout() const {
    Carver carver;
    RemoteLayout layout;
    layout.dispatch_header = carver.take<u64>(dispatch_header_bytes / 8);
    layout.slots = carver.take<u8>(slots_bytes);
    layout.combine_header = carver.take<u64>(combine_header_bytes / 8);
    layout.partials = carver.take<u8>(partials_bytes);
    layout.pitch_bytes = carver.total_bytes();
    return layout;
  }
  /// What this rank packs: once puts of one phase are sent, the next phase packs in the same place.
  [[nodiscard]] constexpr RemoteLayout send_layout() const {
    Carver carver;
    RemoteLayout layout;
    layout.dispatch_header = carver.take<u64>(dispatch_header_bytes / 8);
    layout.combine_header = carver.take<u64>(combine_header_bytes / 8);
    layout.slots = carver.take<u8>(max_of(slots_bytes, partials_bytes));
    layout.partials = layout.slots;
    layout.pitch_bytes = carver.total_bytes();
    return layout;
  }
};

/// Part of kernel arguments; unused without remotes. Its owner is RemoteLink (src/exchange/modes).
struct RemoteArgs {
  const RankRoute* routes = nullptr;  ///< [num_ranks], memory of the device, as all tables here
  /// [num_ranks]: in which order sources are looked at: peers, remotes, and this rank last.
  const i32* sources = nullptr;
  i32 num_peers = 0;  ///< of these, this rank not included
  i32 num_remotes = 0;
  i32 log2_slots_per_chunk = 0;  ///< at most PumpScratch::kLog2BatchRows
  u8* send = nullptr;            ///< [num_remotes]: RemoteLayout
  u8* receive = nullptr;
  RemoteLayout send_layout{};
  RemoteLayout receive_layout{};
  /// [num_remotes][channel.max_chunks]: pieces that a chunk still waits for before it is handed over; zero between
  /// calls.
  u32* pieces = nullptr;
  /// [kRowPhases][num_ranks][channel.max_chunks], zero at first: the channel's arrival flags once more, where a look
  /// costs little. Null: the launch has no relay (NOTE [relay], kernels/moe/relay.cuh).
  u64* relayed = nullptr;
  u64* free = nullptr;  ///< [kRowPhases], likewise: the last epoch in which the phase was free to pack
  PutChannelView channel{};
};

/// Blocks of a launch of at most `max_blocks` that relay and do nothing else.
constexpr i32 relay_blocks(bool has_remotes, bool is_host, i32 max_blocks) {
  return has_remotes && !is_host && max_blocks > 1 ? 1 : 0;
}

}  // namespace moelink

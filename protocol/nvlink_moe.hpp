// What the host and the kernels of the nvlink mode agree on: specs, arguments, and the layout of the symmetric memory.
// The protocol, its ordering argument and the reuse argument of every region: docs/nvlink.md.
//
// A source is a group of tp_size ranks that hold the same tokens (tp_size 1: a rank). A slot is a place that a
// destination keeps for one token of a source: slot j of (source, destination) is the source's j-th token, ascending,
// with an expert there.
#pragma once

#include "moelink/protocol/carver.hpp"
#include "moelink/protocol/local_moe.hpp"
#include "moelink/protocol/nvlink_lines.hpp"
#include "moelink/protocol/remote_moe.hpp"
#include "moelink/protocol/types.hpp"
#include "moelink/protocol/window.hpp"

namespace moelink {

/// The experts of rank r: [first_expert_of(r), first_expert_of(r + 1)); the same for physical experts. Products of ranks
/// (a launcher has 65 536 at most) and experts (kMaxExperts) fit 32 bits.
MOELINK_DEVICE constexpr i32 first_expert_of(i32 rank, i32 num_experts, i32 num_ranks) {
  return static_cast<i32>(static_cast<u32>(rank) * static_cast<u32>(num_experts) / static_cast<u32>(num_ranks));
}
MOELINK_DEVICE constexpr i32 owner_of_expert(i32 expert, i32 num_experts, i32 num_ranks) {
  return static_cast<i32>((static_cast<u32>(expert + 1) * static_cast<u32>(num_ranks) - 1) /
                          static_cast<u32>(num_experts));
}

/// Most parts of a row: a power of two.
inline constexpr i32 kMaxWireParts = 8;

/// How the rows of one source travel in one call: chosen by the sender, told in its header, so that a receiver never
/// guesses (rule 1); equal over the members of a group. A flag covers 2^log2_slots_per_flag slots (a chunk); a row is
/// sent in `parts`, a power of two, each with flags of its own. Part 0 brings the record, and the scales too unless
/// each part brings its own. Chunk c is sent, and its flags are set, by member c mod tp_size: a receiver knows whom it
/// waits for before it knows the tokens.
struct WireFormat {
  u8 log2_slots_per_flag = 0;
  u8 parts = 1;
  u8 payload = 0;         ///< index of the configuration's payload: must be the same on all ranks
  u8 reuse_routing = 0;   ///< slots are those of the last call: must be the same on all ranks
  u8 scales_by_part = 0;  ///< 1: blocks that share a row quantise it, and each has the scales of its part

  MOELINK_DEVICE constexpr u32 packed() const {
    return static_cast<u32>(log2_slots_per_flag) | static_cast<u32>(parts) << 8 | static_cast<u32>(payload) << 16 |
           static_cast<u32>(reuse_routing) << 24 | static_cast<u32>(scales_by_part) << 25;
  }
  MOELINK_DEVICE static constexpr WireFormat unpacked(u32 word) {
    return {static_cast<u8>(word), static_cast<u8>(word >> 8), static_cast<u8>(word >> 16),
            static_cast<u8>(word >> 24 & ~2U), static_cast<u8>(word >> 25 & 1U)};
  }

  MOELINK_DEVICE constexpr i32 member_of_slot(i32 slot, i32 tp_size) const {
    return (slot >> log2_slots_per_flag) % tp_size;
  }
  /// Which of its member's flags tells that `part` of the slot is there.
  MOELINK_DEVICE constexpr i64 flag_of_slot(i32 slot, i32 part) const {
    return static_cast<i64>(slot >> log2_slots_per_flag) * parts + part;
  }
  /// Whether any sender can have said so.
  MOELINK_DEVICE constexpr bool valid() const {
    return parts >= 1 && parts <= kMaxWireParts && (parts & (parts - 1)) == 0 && log2_slots_per_flag < 31;
  }
};
/// Bytes of every part of a row but the last ones, which may be shorter or empty: whole blocks of any format's scales.
inline constexpr i32 kWirePartUnit = 128;
MOELINK_DEVICE constexpr i64 wire_part_bytes(i64 row_bytes, i32 parts) {
  // 32 bits: kernels compute this before they wait.
  return round_up(static_cast<i32>(ceil_div(static_cast<u32>(row_bytes), static_cast<u32>(parts))), kWirePartUnit);
}

/// The same for 2^log2_parts parts, without a division.
MOELINK_DEVICE constexpr i32 wire_part_bytes_log2(i64 row_bytes, i32 log2_parts) {
  return round_up((static_cast<i32>(row_bytes) + (1 << log2_parts) - 1) >> log2_parts, kWirePartUnit);
}

/// What a source member tells every rank, itself included, before any row: one line {value, tag of the epoch} per word.
/// Behind these words, from member 0 alone: the source's entries for each of the destination's experts, zero behind
/// them.
struct DispatchHeader {
  static constexpr i32 kNumSlots = 0;
  static constexpr i32 kNumTokens = 1;
  static constexpr i32 kFormat = 2;
  static constexpr i32 kHash = 3;  ///< of ids and weights: equal over the members of a group, or it is a fault
  static constexpr i32 kCounts = 4;
};
/// What a destination tells a home before any partial row.
struct CombineHeader {
  static constexpr i32 kDropped = 0;  ///< entries of the home's group that found no room
  static constexpr i32 kPartial = 1;  ///< the Element of its partial rows: must be the same on all ranks
  static constexpr i32 kWords = 4;
};
/// Flags of one partial row: the row comes in so many parts, whoever sends it. Each but the last has as many whole
/// units of kPartialUnit elements. A function of the configuration (rule 1); how many blocks share a row, on either
/// side, is nobody else's business.
inline constexpr i64 kPartialUnit = 8;
MOELINK_DEVICE constexpr i32 partial_parts(i64 hidden) {
  constexpr i64 kLeastUnits = 16;  // less is not worth a flag
  i32 parts = kMaxWireParts;
  while (parts > 1 && hidden < parts * kLeastUnits * kPartialUnit) parts /= 2;
  return parts;
}
// So many parts of at least 16 units never leave the last one empty: with an empty part a block would not come to its
// flags.
static_assert(kMaxWireParts <= 16);

/// What travels with a row: who it is, and where each of its entries goes.
struct SlotEntry {
  i32 expert = -1;  ///< local expert of the destination; -1: this entry is not for it
  i32 rank = 0;     ///< how many earlier entries of the source chose that expert
  float weight = 0;
};
/// Bytes of one slot's record: {i32 token, padding to 16}, then top_k SlotEntry; a multiple of 16.
MOELINK_DEVICE constexpr i64 slot_record_bytes(i32 top_k) { return 16 + round_up(top_k * i64{sizeof(SlotEntry)}, 16L); }

/// Bytes of one slot on its way between nodes: record, row, scales.
MOELINK_DEVICE constexpr i64 remote_row_offset(i32 top_k) {
  return round_up(slot_record_bytes(top_k), kRemoteRowAlignmentBytes);
}
MOELINK_DEVICE constexpr i64 remote_slot_bytes(i64 row_and_scale_bytes, i32 top_k) {
  return remote_row_offset(top_k) + round_up(row_and_scale_bytes, kRemoteRowAlignmentBytes);
}

/// The numbers that decide the layout: equal on all ranks.
struct NvlinkShape {
  i32 num_ranks = 1;
  i32 tp_size = 1;
  i32 node_ranks = 0;   ///< ranks of the largest node, if there are several (then tp_size is 1); else 0
  i32 num_experts = 0;  ///< physical
  i32 top_k = 0;
  i64 max_tokens = 0;
  i64 row_pitch_bytes = 0;      ///< of a slot: the widest payload's row and scales, a multiple of 16
  i64 partial_pitch_bytes = 0;  ///< the widest partial row
  i64 result_pitch_bytes = 0;   ///< the widest output row; used if tp_size > 1
  i32 line_tokens = 0;          ///< partials of a source with at most so many tokens travel as lines; 0: never

  MOELINK_DEVICE constexpr i32 num_groups() const { return num_ranks / tp_size; }
  /// Ranks and groups that store into one another's memory.
  MOELINK_DEVICE constexpr i32 num_near_ranks() const { return node_ranks != 0 ? node_ranks : num_ranks; }
  MOELINK_DEVICE constexpr i32 num_near_groups() const { return num_near_ranks() / tp_size; }
  MOELINK_DEVICE constexpr i32 most_local_experts() const { return ceil_div(num_experts, num_ranks); }
  MOELINK_DEVICE constexpr i32 header_words() const {
    return DispatchHeader::kCounts + round_up(most_local_experts(), 4);
  }
};

/// The symmetric memory of one Exchange: the same at every rank. Written by others only, except where said. Ranks and
/// groups are those of the node, by their number in it.
struct NvlinkLayout {
  // Dispatch: written by sources.
  Place<u64> dispatch_headers;  ///< [ranks of all nodes][header_words]; those of remotes are stored by their receiver
  Place<u64> dispatch_flags;    ///< [groups][tp_size][max_tokens * kMaxWireParts]
  Place<u8> slot_records;       ///< [groups][max_tokens][slot_record_bytes]
  Place<u8> slot_rows;          ///< [groups][max_tokens][row_pitch_bytes]: row, then scales
  // Combine: written by destinations.
  Place<u64> combine_headers;  ///< [ranks][CombineHeader::kWords]
  Place<u64> combine_flags;    ///< [ranks][max_tokens * kMaxWireParts]
  Place<u8> partial_rows;      ///< [ranks][max_tokens][partial_pitch_bytes]: at the slots that the destination used
  // The same of sources with at most line_tokens tokens, in place of rows and flags.
  Place<u8> line_partials;  ///< [ranks][line_tokens][partial_pitch_bytes * kLineExpansion]
  // Combine with tp_size > 1: written by the member that summed.
  Place<u64> result_flags;  ///< [max_tokens * kMaxWireParts]
  Place<u8> result_rows;    ///< [max_tokens][result_pitch_bytes]
  i64 total_bytes = 0;

  MOELINK_DEVICE static constexpr NvlinkLayout of(const NvlinkShape& shape) {
    NvlinkLayout layout;
    Carver carver;
    const i64 ranks = shape.num_near_ranks();
    const i64 groups = shape.num_near_groups();
    const i64 flags = shape.max_tokens * kMaxWireParts;
    const i64 results = shape.tp_size > 1 ? shape.max_tokens : 0;
    layout.dispatch_headers = carver.take<u64>(i64{shape.num_ranks} * shape.header_words());
    layout.dispatch_flags = carver.take<u64>(ranks * flags);
    layout.slot_records = carver.take<u8>(groups * shape.max_tokens * slot_record_bytes(shape.top_k));
    layout.slot_rows = carver.take<u8>(groups * shape.max_tokens * shape.row_pitch_bytes);
    layout.combine_headers = carver.take<u64>(ranks * CombineHeader::kWords);
    layout.combine_flags = carver.take<u64>(ranks * flags);
    layout.partial_rows = carver.take<u8>(ranks * shape.max_tokens * shape.partial_pitch_bytes);
    layout.line_partials = carver.take<u8>(ranks * shape.line_tokens * shape.partial_pitch_bytes * kLineExpansion);
    layout.result_flags = carver.take<u64>(results * kMaxWireParts);
    layout.result_rows = carver.take<u8>(results * shape.result_pitch_bytes);
    layout.total_bytes = carver.total_bytes();
    return layout;
  }
};

/// The phases of one epoch, in order. A kernel runs one of them, or send and receive of one call.
enum class NvlinkPhase : i32 { dispatch_send, dispatch_receive, combine_send, combine_receive };
inline constexpr i32 kNvlinkPhases = 4;

/// Private memory that dispatch fills and combine reads (and a dispatch that reuses the routing). Contents at
/// construction: epochs zero, slots -1, counts zero. This rank's own group counts as a source here like the others, and
/// this rank as a destination, though these rows do not travel. Per-slot arrays are defined below the slots in use
/// only; combine trusts none of it with an address.
struct NvlinkTables {
  u64* epochs;          ///< [kNvlinkPhases], each on a cache line of its own (kEpochStride words apart): how often each
                        ///< phase was completed. A phase reads its predecessor's word and, at its end, writes its own;
                        ///< kBrokenWord words further: not 0 for good, once any block of the phase has met a fault
  i32* slot_of_token;   ///< [ranks][max_tokens]: slot of this group's token at each destination, or -1
  i32* token_of_slot;   ///< [ranks][max_tokens]: the inverse, for senders
  i32* num_sent;        ///< [ranks]: slots that this group uses at each destination
  i32* num_received;    ///< [groups]: slots that each source uses here; kNoDispatch for the own one after a fault
  i32* source_tokens;   ///< [groups]: tokens of each source
  i32* received_token;  ///< [groups][max_tokens]
  i32* row_of_entry;    ///< [groups][max_tokens][top_k]: row here of a slot's entry, or -1
  float* weight_of_entry;  ///< [groups][max_tokens][top_k]
  i32* dropped;            ///< [groups]: entries of each source that found no room here
  u64* tickets =
      nullptr;  ///< prefill: {epoch, units of dispatch_receive taken} in one word, on a line of its own; zero

  static constexpr i32 kEpochStride = 16;
  static constexpr i32 kBrokenWord = 1;
  static constexpr i32 kNoDispatch = -1;
};

/// Specialises the kernels of the nvlink dispatch.
struct NvlinkDispatchSpec {
  i64 row_bytes = 0;    ///< bytes moved per row, a multiple of 16
  i32 scale_bytes = 0;  ///< bytes per token that travel with the row
  i32 num_ranks = 0;
  i32 tp_size = 1;
  i32 num_experts = 0;  ///< physical experts of all ranks
  i32 top_k = 0;
  i32 threads = 0;
  i32 blocks_per_sm = 1;             ///< blocks one SM should hold at once: bounds registers
  Element weighted = Element::none;  ///< element type if rows are multiplied by their weight as they are placed
  bool has_remotes = false;          ///< some ranks are on other nodes
  /// As LocalDispatchSpec has them.
  QuantFormat quantize = QuantFormat::none;
  Element input = Element::none;

  constexpr auto fields(auto&& visit) const {
    return visit(row_bytes, scale_bytes, num_ranks, tp_size, num_experts, top_k, threads, blocks_per_sm, weighted,
                 has_remotes, quantize, input);
  }
  /// Bytes of a token as the caller passes it, for one of a row.
  MOELINK_DEVICE constexpr i32 token_bytes_per_byte() const { return moelink::token_bytes_per_byte(quantize); }
};

/// Arguments of the nvlink dispatch kernels.
struct NvlinkDispatchArgs {
  /// Tokens, ids, weights, counts and where rows go, as in the local mode; `offsets`, `counts` and `expert_of_row`
  /// speak of this rank's experts. row_of_entry, weight_of_entry, grid_barrier and block_counts are not used by all
  /// kernels.
  LocalDispatchArgs local;
  const i32* expert_map;  ///< [num_logical_experts, max_replicas] or null: ids are physical experts
  i32 num_logical_experts;
  i32 max_replicas;
  i32 sends;     ///< this launch does dispatch_send
  i32 receives;  ///< this launch does dispatch_receive
  WireFormat format;
  i32 num_senders;  ///< prefill: blocks that send before they receive
  i32 late_flags;   ///< decode: a launch that also receives sets flags when it has placed its own rows
  NvlinkShape shape;
  NvlinkLayout layout;
  NvlinkTables tables;
  Window window;
  RemoteArgs remote;
};

/// Specialises the nvlink combine.
struct NvlinkCombineSpec {
  i64 hidden = 0;
  i32 num_ranks = 0;
  i32 tp_size = 1;
  i32 top_k = 0;
  i32 threads = 0;
  i32 blocks_per_sm = 1;                ///< bounds registers
  Element input = Element::bfloat16;    ///< expert output
  Element partial = Element::bfloat16;  ///< what travels: as input, or fp32
  Element output = Element::bfloat16;
  bool has_remotes = false;  ///< some ranks are on other nodes

  constexpr auto fields(auto&& visit) const {
    return visit(hidden, num_ranks, tp_size, top_k, threads, blocks_per_sm, input, partial, output, has_remotes);
  }
  /// Whether partials of few tokens are lines (nvlink_lines.hpp). In fp32 they are twice as long to begin with.
  MOELINK_DEVICE constexpr bool may_have_lines() const { return !has_remotes && partial != Element::float32; }
};

/// Arguments of the nvlink combine kernels.
struct NvlinkCombineArgs {
  LocalCombineArgs local;  ///< expert output and output as in the local mode; its row_of_entry is not used
  i32 sends;               ///< this launch does combine_send
  i32 receives;            ///< this launch does combine_receive
  i32 send_blocks;         ///< blocks that share one partial row: a power of two, at most partial_parts(hidden)
  i32 send_rows;           ///< such rows that this is meant for: with more, fewer share one. 0: any number
  i32 sum_blocks;          ///< as send_blocks, for one token's sum. In NvlinkCombineMany both are warps, and as many,
                           ///< and send_rows is 0
  i32 first_sum_block;     ///< the block that takes the first sum; the others follow. The first partial is block 0's
  i32 late_flags;  ///< flags may wait until the next sum's own rows are read: there is much on the link before them
  i32 lag_tokens;  ///< of a launch for many tokens: how far sums are behind what is sent; not negative
  NvlinkShape shape;
  NvlinkLayout layout;
  NvlinkTables tables;
  Window window;
  FaultContext fault;
  RemoteArgs remote;
};

}  // namespace moelink

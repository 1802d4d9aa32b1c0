// Rows that other sources have stored in their slots here: waited for, read once, stored to their places. The work is
// cut into pieces, one at a time per block, whatever wire format a source chose: a piece is one of its parts, or a
// share of a part that is more than a block holds.
//
// Ordering: one thread per flag acquires; the block barrier behind it passes that on to the block. Reads then are
// ordinary (never non-coherent) loads.
#pragma once

#include "moelink/device/moe/nvlink_places.cuh"
#include "moelink/device/moe/nvlink_slots.cuh"
#include "moelink/device/primitives/held.cuh"
#include "moelink/device/primitives/row_copy.cuh"
#include "moelink/device/primitives/scale_copy.cuh"

namespace moelink {

template <class Exec, class S>
class ReceivedRows {
 public:
  /// `items`, `rows`, `weights`: block scratch (NvlinkDecodeScratch).
  MOELINK_DEVICE ReceivedRows(S spec, const NvlinkDispatchArgs& args, const SourceHeaders<S>& headers,
                              const Places<S>& places, u64 epoch, u32* items, i32* rows, float* weights)
      : spec_(spec),
        args_(args),
        headers_(headers),
        places_(places),
        slots_(spec, args),
        epoch_(epoch),
        items_(items),
        rows_(rows),
        weights_(weights) {}

  /// By one warp, once the headers are there: how many pieces come from the sources before each. For all threads after
  /// the next block barrier.
  MOELINK_DEVICE void count(const Exec& ex) const {
    const i32 own = args_.window.rank / spec_().tp_size;
    u32 below = 0;
    MOELINK_NO_UNROLL
    for (i32 from = 0; from < num_groups(); from += Exec::kWarpSize) {
      const i32 turn = from + ex.lane();
      const i32 group = turn < num_groups() ? group_in_turn(turn) : own;
      const u32 pieces = group != own ? static_cast<u32>(headers_.num_slots(group)) << log2_pieces(group) : 0;
      const u32 before = below + warp_exclusive_sum(ex, pieces);
      if (turn < num_groups()) items_[turn] = before;
      below = warp_broadcast(ex, before + pieces, Exec::kWarpSize - 1);
    }
    if (ex.lane() == 0) items_[num_groups()] = below;
  }

  /// By the block: this block's share of the pieces, of which `first_block` has the first. False, for all threads,
  /// after a fault.
  [[nodiscard]] MOELINK_DEVICE bool place_all(const Exec& ex, i32 first_block) const {
    const u32 end = items_[num_groups()];
    const u32 step = static_cast<u32>(ex.num_blocks());
    const i32 turn = ex.block() - first_block;
    MOELINK_NO_UNROLL
    for (u32 first = static_cast<u32>(turn < 0 ? turn + ex.num_blocks() : turn); first < end; first += kAtOnce * step) {
      bool failed = false;
      for (u32 i = static_cast<u32>(ex.warp()); i < kAtOnce; i += static_cast<u32>(ex.num_warps())) {
        if (first + i * step < end && !failed) failed = !wait(ex, locate(ex, first + i * step));
      }
      if (ex.sync_block_or(failed)) return false;
      MOELINK_NO_UNROLL
      for (u32 i = 0; i < kAtOnce && first + i * step < end; ++i) {
        place(ex, Fetched(*this, ex, first + i * step), static_cast<i32>(i & 1U));
      }
    }
    return true;
  }

 private:
  /// Pieces that a block waits for together: one per warp.
  static constexpr u32 kAtOnce = Exec::kIsDevice ? 8 : 1;
#if MOELINK_ON_DEVICE
  // With fewer a warp would look for a second one while some of its lanes have met a fault.
  static_assert(S{}().threads / Exec::kWarpSize >= static_cast<int>(kAtOnce), "a warp for each piece");
#endif
  using Row = ReceivedPart<Exec, S>;

  struct Piece {
    i32 group;
    i32 slot;
    i32 piece;  ///< of the row
    WireFormat format;
    i32 log2_share;  ///< pieces that share a part
  };

  /// A piece on its way from its slot: what each thread holds of it.
  struct Fetched {
    /// By the block: begins to read piece `index`.
    MOELINK_DEVICE Fetched(const ReceivedRows& all, const Exec& ex, u32 index) : row(all.spec_), scales(all.spec_) {
      const Piece from = all.locate(ex, index);
      const i32 rank = all.args_.window.rank;
      const u8* source = all.slots_.row(rank, from.group, from.slot);
      const u8* record = all.slots_.record(rank, from.group, from.slot);
      const i32 row_bytes = static_cast<i32>(all.spec_().row_bytes);
      const i32 part_bytes = wire_part_bytes_log2(row_bytes, floor_log2(from.format.parts));
      const i32 share_bytes = ((part_bytes / 16 + (1 << from.log2_share) - 1) >> from.log2_share) * 16;
      const i32 part = from.piece >> from.log2_share;
      const i32 share = from.piece & ((1 << from.log2_share) - 1);
      group = from.group;
      slot = from.slot;
      first_byte = part * part_bytes + share * share_bytes;
      const i32 end = min_of(min_of(first_byte + share_bytes, (part + 1) * part_bytes), row_bytes);
      row.load_received(ex, source + first_byte, end - first_byte);
      if (all.args_.format.reuse_routing == 0) {
        token = SlotRecord::load_token(record);
        entries.load(ex, SlotRecord::entries(record), all.spec_().top_k, SlotEntry{});
      }
      if (is_first() && all.args_.local.row_scales != nullptr) scales.load(ex, source + row_bytes);
    }
    /// One piece of a row also brings what is known of it.
    MOELINK_DEVICE bool is_first() const { return first_byte == 0; }

    i32 group = 0;
    i32 slot = 0;
    i32 first_byte = 0;
    i32 token = 0;
    Row row;
    ScalePart<Exec, S> scales;
    Held<Exec, SlotEntry> entries;
  };

  [[nodiscard]] MOELINK_DEVICE i32 num_groups() const { return places_.num_groups; }
  /// Sources are taken in ascending order; with remotes, which are slower, peers first.
  [[nodiscard]] MOELINK_DEVICE i32 group_in_turn(i32 turn) const {
    return spec_().has_remotes ? args_.remote.sources[turn] : turn;
  }

  /// Pieces of a source's rows, as a power of two: its parts, or so many that one fits a block.
  [[nodiscard]] MOELINK_DEVICE i32 log2_pieces(i32 group) const {
    i32 log2 = floor_log2(headers_.format(group).parts);
    for (i32 bytes = wire_part_bytes_log2(spec_().row_bytes, log2); bytes > Row::kMaxBytes; ++log2) {
      bytes = (bytes / 16 + 1) / 2 * 16;
    }
    return log2;
  }

  /// By a warp, whose lanes look at sources together.
  [[nodiscard]] MOELINK_DEVICE Piece locate(const Exec& ex, u32 index) const {
    u32 below = 0;
    for (i32 turn = ex.lane(); turn < num_groups(); turn += Exec::kWarpSize) {
      below += items_[turn + 1] <= index ? 1 : 0;
    }
    const i32 turn = static_cast<i32>(warp_sum(ex, below));
    const i32 group = group_in_turn(turn);
    const u32 rest = index - items_[turn];
    const i32 log2 = log2_pieces(group);
    const WireFormat format = headers_.format(group);
    return {.group = group,
            .slot = static_cast<i32>(rest >> static_cast<u32>(log2)),
            .piece = static_cast<i32>(rest & ((1U << static_cast<u32>(log2)) - 1)),
            .format = format,
            .log2_share = log2 - floor_log2(format.parts)};
  }

  /// By a warp: the flag of the piece's part, and that of part 0, which covers the record. Part 0 also takes the
  /// scales, which the others may have brought.
  [[nodiscard]] MOELINK_DEVICE bool wait(const Exec& ex, const Piece& piece) const {
    const i32 part = piece.piece >> piece.log2_share;
    bool arrived = true;
    const bool waits_for_all = spec_().scale_bytes != 0 && part == 0 && piece.format.scales_by_part != 0;
    const i32 first = waits_for_all ? piece.format.parts : 1;
    for (i32 i = ex.lane(); i < first + (part == 0 ? 0 : 1) && arrived; i += Exec::kWarpSize) {
      arrived = slots_.wait(piece.group, piece.slot, i < first ? i : part, piece.format, epoch_);
    }
    return arrived;
  }

  /// By the block: stores a piece to its rows. `half` of the scratch alternates, so that one barrier a piece is enough.
  MOELINK_DEVICE void place(const Exec& ex, const Fetched& held, i32 half) const {
    i32* rows = rows_ + half * kMaxTopK;
    float* weights = weights_ + half * kMaxTopK;
    for (i32 k = ex.thread(); k < spec_().top_k; k += ex.num_threads()) {
      if (args_.format.reuse_routing != 0) {
        place_again(held, k, rows[k], weights[k]);
        continue;
      }
      const SlotEntry entry = held.entries.get(k);
      rows[k] = places_.row_of(held.group, entry);
      weights[k] = entry.weight;
      if (held.is_first()) {
        publish_slot_entry(args_, spec_().top_k, held.group, held.slot, held.token, k, rows[k], entry);
      }
    }
    if (held.is_first() && ex.thread() == 0 && args_.format.reuse_routing == 0) {
      args_.tables.received_token[held.group * args_.shape.max_tokens + held.slot] = held.token;
    }
    ex.sync_block();
    held.row.store_all(ex, static_cast<u8*>(args_.local.rows) + held.first_byte, args_.local.row_stride_bytes, rows,
                       weights, false);
    if (held.is_first() && args_.local.row_scales != nullptr) {
      held.scales.store_all(ex, static_cast<u8*>(args_.local.row_scales), rows, spec_().top_k);
    }
  }

  /// Entry k of a piece whose routing is reused.
  MOELINK_DEVICE void place_again(const Fetched& held, i32 k, i32& row, float& weight) const {
    const i64 entry = (held.group * args_.shape.max_tokens + held.slot) * spec_().top_k + k;
    const i32 last = args_.tables.row_of_entry[entry];
    row = last < static_cast<i32>(places_.total_rows()) ? last : -1;
    weight = args_.tables.weight_of_entry[entry];
  }

  S spec_;
  const NvlinkDispatchArgs& args_;
  const SourceHeaders<S>& headers_;
  const Places<S>& places_;
  Slots<S> slots_;
  u64 epoch_;
  u32* items_;
  i32* rows_;
  float* weights_;
};

}  // namespace moelink

// Which pieces of which rows a block of the nvlink combine sends, and which it sums: pure arithmetic over the tables
// that dispatch left, the same in all threads of a block. For NvlinkCombine and NvlinkCombineMany alone, which
// say in which order it takes them.
#pragma once

#include "moelink/device/primitives/warp.cuh"
#include "moelink/protocol/nvlink_combine_plan.hpp"

namespace moelink {

/// One block's piece of a row: wire parts [first_part, first_part + num_parts) of slot or token `index`.
struct RowPiece {
  i32 index = 0;
  i32 first_part = 0;
  i32 num_parts = 1;
};

/// One block's piece of a partial row that it sends.
struct CombineSend {
  i32 group = 0;  ///< whose slot it is
  i32 home = 0;   ///< the rank it goes to
  RowPiece piece;
  bool as_lines = false;
};

/// Who takes pieces: a block or, in a launch for many tokens, a warp. (Blocks in what follows are these.)
struct CombineWorker {
  i32 index;
  i32 count;

  template <class Exec>
  MOELINK_DEVICE static CombineWorker block(const Exec& ex) {
    return {ex.block(), ex.num_blocks()};
  }
  /// The first ones are on SMs of their own.
  template <class Exec>
  MOELINK_DEVICE static CombineWorker warp(const Exec& ex, i32 warps_of_block) {
    return {ex.warp() * ex.num_blocks() + ex.block(), warps_of_block * ex.num_blocks()};
  }
};

/// What dispatch left of every source: how many of its tokens came here, and how many it has. Asked for on entry, a
/// lane a source, so that one trip to memory brings all. Used by whole warps.
template <class Exec, class S>
class SourceCounts {
 public:
  MOELINK_DEVICE SourceCounts(const Exec& ex, S spec, const NvlinkCombineArgs& args)
      : ex_(ex), spec_(spec), args_(args) {
    if (!is_in_lanes() || ex.lane() >= num_groups()) return;
    received_ = args.tables.num_received[ex.lane()];
    tokens_ = args.tables.source_tokens[ex.lane()];
  }

  [[nodiscard]] MOELINK_DEVICE i32 num_groups() const { return spec_().num_ranks / spec_().tp_size; }
  /// NvlinkTables::kNoDispatch after a dispatch that failed.
  [[nodiscard]] MOELINK_DEVICE i32 received(i32 group) const {
    return is_in_lanes() ? of_lane(received_, group) : args_.tables.num_received[group];
  }
  /// Slots that a source uses here.
  [[nodiscard]] MOELINK_DEVICE i32 slots(i32 group) const { return as_slots(received(group)); }
  /// The most that any of them uses; `but`: not counted.
  [[nodiscard]] MOELINK_DEVICE i32 most_slots(i32 but) const {
    if (is_in_lanes()) {
      const bool counts = ex_.lane() < num_groups() && ex_.lane() != but;
      return static_cast<i32>(warp_max(ex_, static_cast<u32>(counts ? as_slots(received_) : 0)));
    }
    i32 most = 0;
    for (i32 group = 0; group < num_groups(); ++group) most = max_of(most, group == but ? 0 : slots(group));
    return most;
  }
  /// All that they use together; `but`: not counted. The host sees to it that 32 bits are enough.
  [[nodiscard]] MOELINK_DEVICE i32 total_slots(i32 but) const {
    if (is_in_lanes()) {
      const bool counts = ex_.lane() < num_groups() && ex_.lane() != but;
      return static_cast<i32>(warp_sum(ex_, static_cast<u32>(counts ? as_slots(received_) : 0)));
    }
    i32 total = 0;
    for (i32 group = 0; group < num_groups(); ++group) total += group == but ? 0 : slots(group);
    return total;
  }
  /// Whether a source has so few tokens that partials for it may be lines: the same at both ends, and no slot is past
  /// their region, whatever the tables say.
  [[nodiscard]] MOELINK_DEVICE bool has_few_tokens(i32 group) const {
    const i32 tokens = is_in_lanes() ? of_lane(tokens_, group) : args_.tables.source_tokens[group];
    return max_of(tokens, received(group)) <= args_.shape.line_tokens;
  }

 private:
  [[nodiscard]] MOELINK_DEVICE bool is_in_lanes() const { return num_groups() <= Exec::kWarpSize; }
  [[nodiscard]] MOELINK_DEVICE i32 of_lane(i32 value, i32 lane) const {
    return static_cast<i32>(warp_broadcast(ex_, static_cast<u32>(value), lane));
  }
  [[nodiscard]] MOELINK_DEVICE i32 as_slots(i32 received) const {
    return min_of(max_of(received, 0), static_cast<i32>(args_.shape.max_tokens));
  }

  const Exec& ex_;
  S spec_;
  const NvlinkCombineArgs& args_;
  i32 received_ = 0;  ///< of the source that is this lane's
  i32 tokens_ = 0;    ///< likewise
};

/// How rows are cut: elements of wire parts.
template <class S>
MOELINK_DEVICE i32 first_element_of_part(S spec, i32 part) {
  const i32 hidden = static_cast<i32>(spec().hidden);
  const i32 units = ceil_div(ceil_div(hidden, static_cast<i32>(kPartialUnit)), partial_parts(spec().hidden));
  return min_of(part * units * static_cast<i32>(kPartialUnit), hidden);
}

/// The slots that one block sends, destinations interleaved. Each rank starts with the next one, so that not all store
/// to one at once; and each round turns the blocks by one, so that no block is left with the sources that sent nothing.
template <class Exec, class S>
class CombineSends {
 public:
  MOELINK_DEVICE CombineSends(const CombineWorker& worker, S spec, const NvlinkCombineArgs& args,
                              const SourceCounts<Exec, S>& counts, u64 epoch)
      : args_(args),
        counts_(counts),
        num_blocks_(worker.count),
        log2_blocks_(floor_log2(static_cast<u32>(max_of(args.send_blocks, 1)))),
        turn_(worker.index) {
    own_group_ = args.window.rank / spec().tp_size;
    // Own tokens stay, but with members their home may be another.
    num_sources_ = spec().tp_size > 1 ? counts.num_groups() : counts.num_groups() - 1;
    may_have_lines_ = spec().may_have_lines() && !clears_lines(epoch);
    if (args.sends == 0) return;
    const i32 but = spec().tp_size > 1 ? -1 : own_group_;
    const i32 most_rows = counts.most_slots(but) * num_sources_;  // the host sees to it that 32 bits are enough
    // Other ranks may have many more tokens than this one: then their rows are enough for all blocks.
    if (args.send_rows > 0 && most_rows > args.send_rows) share_less(counts.total_slots(but));
    num_items_ = most_rows << log2_blocks_;
  }

  /// Blocks that share a row.
  [[nodiscard]] MOELINK_DEVICE i32 blocks_of_row() const { return 1 << log2_blocks_; }

  /// The block's next piece; false: there is none. The same in all threads, which all ask.
  MOELINK_DEVICE bool next(S spec, CombineSend& send) {
    while (first_ < num_items_) {
      const i32 item = first_ + turn_;
      first_ += num_blocks_;
      turn_ = turn_ + 1 == num_blocks_ ? 0 : turn_ + 1;
      if (item >= num_items_) continue;
      const u32 row = static_cast<u32>(item >> log2_blocks_);
      const i32 slot = static_cast<i32>(row / static_cast<u32>(num_sources_));
      const i32 group = source(static_cast<i32>(row % static_cast<u32>(num_sources_)));
      if (slot >= counts_.slots(group)) continue;
      i32 home = group * spec().tp_size;
      if (spec().tp_size > 1) {
        const i32 token = args_.tables.received_token[group * args_.shape.max_tokens + slot];
        home += static_cast<i32>(static_cast<u32>(token) % static_cast<u32>(spec().tp_size));
        if (home == args_.window.rank) continue;
      }
      const i32 parts = partial_parts(spec().hidden) >> log2_blocks_;
      const RowPiece piece{slot, (item & ((1 << log2_blocks_) - 1)) * parts, parts};
      send = {group, home, piece, may_have_lines_ && counts_.has_few_tokens(group)};
      return true;
    }
    return false;
  }

 private:
  /// Fewer blocks a row, as there are so many.
  MOELINK_DEVICE void share_less(i64 rows) {
    MOELINK_NO_UNROLL
    for (i64 planned = args_.send_rows; log2_blocks_ > 0 && planned < rows; planned *= 2) --log2_blocks_;
  }
  [[nodiscard]] MOELINK_DEVICE i32 source(i32 i) const { return (own_group_ + 1 + i) % counts_.num_groups(); }

  const NvlinkCombineArgs& args_;
  const SourceCounts<Exec, S>& counts_;
  i32 num_blocks_;
  i32 log2_blocks_;
  i32 own_group_ = 0;
  i32 num_sources_ = 0;
  i32 num_items_ = 0;
  i32 first_ = 0;  ///< item of the round
  i32 turn_;       ///< this block's in it
  bool may_have_lines_ = false;
};

/// The tokens that one block sums: those whose home is this rank; or, `copies`, those that other members sum.
template <class S>
class CombineSums {
 public:
  /// `num_tokens`: as dispatch left it.
  MOELINK_DEVICE CombineSums(const CombineWorker& worker, S spec, const NvlinkCombineArgs& args, i32 num_tokens,
                             bool copies)
      : num_blocks_(worker.count),
        member_(args.window.rank % spec().tp_size),
        log2_blocks_(floor_log2(static_cast<u32>(max_of(args.sum_blocks, 1)))),
        copies_(copies) {
    const i32 tokens = min_of(max_of(num_tokens, 0), args.local.num_tokens);
    const i32 own = (tokens - member_ + spec().tp_size - 1) / spec().tp_size;
    num_items_ = (copies ? tokens - own : own) << log2_blocks_;
    i32 first = args.first_sum_block;
    if (first >= worker.count) first %= worker.count;
    item_ = worker.index - first + (worker.index < first ? worker.count : 0);
  }

  MOELINK_DEVICE bool has() const { return item_ < num_items_; }
  MOELINK_DEVICE void advance() { item_ += num_blocks_; }
  MOELINK_DEVICE RowPiece piece(S spec) const {
    const i32 parts = partial_parts(spec().hidden) >> log2_blocks_;
    return {token(spec, item_ >> log2_blocks_), (item_ & ((1 << log2_blocks_) - 1)) * parts, parts};
  }

 private:
  MOELINK_DEVICE i32 token(S spec, i32 i) const {
    if (spec().tp_size == 1) return i;
    if (!copies_) return i * spec().tp_size + member_;
    const i32 others = max_of(spec().tp_size - 1, 1);
    const i32 other = i % others;  // ascending, so that a last group of tokens that is not whole has no gap
    return i / others * spec().tp_size + other + (other < member_ ? 0 : 1);
  }

  i32 num_blocks_;
  i32 member_;
  i32 log2_blocks_;
  bool copies_;
  i32 num_items_;
  i32 item_;
};

/// What a worker of a launch for many tokens does next.
struct CombineTurn {
  bool exists = false;
  bool sums = false;  ///< a token's sum, of which only `what.piece` is set
  CombineSend what;
};

/// A worker's pieces in the order in which it takes them, and in which it may wait.
///
/// NOTE [order of pieces]. It sends by ascending slot and sums by ascending token, and before the sum of token t it
/// sends all that it has of slots up to t (and `lag_tokens` more, so that partials have come when they are wanted).
/// That is enough for nobody to wait for ever, however many workers each rank has. A token's slot is never above the
/// token. So of all workers of all ranks that wait, take one with the lowest token, t: it waits for a slot of at most
/// t, of a worker that is not waiting for a lower token, and that has therefore sent it or goes on and will.
template <class Exec, class S>
class CombineOrder {
 public:
  MOELINK_DEVICE CombineOrder(S spec, const NvlinkCombineArgs& args, CombineSends<Exec, S>& sends, CombineSums<S>& sums)
      : sends_(sends), sums_(sums), sums_are_wanted_(args.receives != 0), lag_(args.lag_tokens) {
    has_send_ = sends_.next(spec, send_);
  }

  /// The same in all threads, which all ask.
  MOELINK_DEVICE CombineTurn next(S spec) {
    const bool has_sum = sums_are_wanted_ && sums_.has();
    CombineTurn turn{.exists = has_send_ || has_sum, .sums = false, .what = send_};
    if (!turn.exists) return turn;
    const RowPiece sum = has_sum ? sums_.piece(spec) : RowPiece{};
    turn.sums = has_sum && (!has_send_ || send_.piece.index > sum.index + lag_);
    if (turn.sums) {
      turn.what.piece = sum;
      sums_.advance();
    } else {
      has_send_ = sends_.next(spec, send_);
    }
    return turn;
  }

 private:
  CombineSends<Exec, S>& sends_;
  CombineSums<S>& sums_;
  bool sums_are_wanted_;
  i32 lag_;
  bool has_send_;
  CombineSend send_;
};

}  // namespace moelink

// Which pieces of which rows a block of the nvlink combine sends, and which it sums: pure arithmetic over the tables
// that dispatch left, the same in all threads of a block. For NvlinkCombine alone (nvlink_combine.cuh), which gives the
// order in which a block takes them.
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

/// Whether a source has so few tokens that partials for it may be lines: the same at both ends, and no slot is past
/// their region, whatever the tables say.
MOELINK_DEVICE bool has_few_tokens(const NvlinkCombineArgs& args, i32 group) {
  return max_of(args.tables.source_tokens[group], args.tables.num_received[group]) <= args.shape.line_tokens;
}

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
  MOELINK_DEVICE CombineSends(const Exec& ex, S spec, const NvlinkCombineArgs& args, u64 epoch)
      : ex_(ex), args_(args), log2_blocks_(floor_log2(static_cast<u32>(max_of(args.send_blocks, 1)))) {
    const i32 groups = spec().num_ranks / spec().tp_size;
    own_group_ = args.window.rank / spec().tp_size;
    num_sources_ = spec().tp_size > 1 ? groups : groups - 1;  // own tokens stay, but their home may be another member
    num_groups_ = groups;
    if (args.sends == 0) return;
    i32 most_slots = 0;
    const bool may_have_lines = spec().may_have_lines() && !clears_lines(epoch);
    for (i32 i = 0; i < num_sources_; ++i) {
      most_slots = max_of(most_slots, slots_of(source(i)));
      if (may_have_lines && has_few_tokens(args, source(i))) few_tokens_ |= u64{1} << static_cast<u32>(i);
    }
    num_items_ = (most_slots * num_sources_) << log2_blocks_;
  }

  /// The block's next piece; false: there is none. The same in all threads.
  MOELINK_DEVICE bool next(S spec, CombineSend& send) {
    for (;; ++round_) {
      const i32 first = round_ * ex_.num_blocks();
      if (first >= num_items_) return false;
      const i32 item = first + (ex_.block() + round_) % ex_.num_blocks();
      if (item >= num_items_) continue;
      const u32 row = static_cast<u32>(item >> log2_blocks_);
      const i32 slot = static_cast<i32>(row / static_cast<u32>(num_sources_));
      const u32 turn = row % static_cast<u32>(num_sources_);
      const i32 group = source(static_cast<i32>(turn));
      if (slot >= slots_of(group)) continue;
      i32 home = group * spec().tp_size;
      if (spec().tp_size > 1) {
        const i32 token = args_.tables.received_token[group * args_.shape.max_tokens + slot];
        home += static_cast<i32>(static_cast<u32>(token) % static_cast<u32>(spec().tp_size));
        if (home == args_.window.rank) continue;
      }
      const i32 parts = partial_parts(spec().hidden) >> log2_blocks_;
      const RowPiece piece{slot, (item & ((1 << log2_blocks_) - 1)) * parts, parts};
      send = {group, home, piece, (few_tokens_ >> (turn % kMaxLineSources) & 1U) != 0};
      ++round_;
      return true;
    }
  }

 private:
  MOELINK_DEVICE i32 source(i32 i) const { return (own_group_ + 1 + i) % num_groups_; }
  MOELINK_DEVICE i32 slots_of(i32 group) const {
    return min_of(max_of(args_.tables.num_received[group], 0), static_cast<i32>(args_.shape.max_tokens));
  }

  const Exec& ex_;
  const NvlinkCombineArgs& args_;
  i32 log2_blocks_;
  i32 own_group_ = 0;
  i32 num_groups_ = 0;
  i32 num_sources_ = 0;
  i32 num_items_ = 0;  // the host sees to it that 32 bits are enough
  i32 round_ = 0;
  u64 few_tokens_ = 0;  // bit i: partials for source(i) are lines
};

/// The tokens that one block sums: those whose home is this rank; or, `copies`, those that other members sum.
template <class Exec, class S>
class CombineSums {
 public:
  MOELINK_DEVICE CombineSums(const Exec& ex, S spec, const NvlinkCombineArgs& args, bool copies)
      : num_blocks_(ex.num_blocks()),
        member_(args.window.rank % spec().tp_size),
        log2_blocks_(floor_log2(static_cast<u32>(max_of(args.sum_blocks, 1)))),
        copies_(copies) {
    const i32 tokens = min_of(max_of(*args.local.num_tokens_snapshot, 0), args.local.num_tokens);
    const i32 own = (tokens - member_ + spec().tp_size - 1) / spec().tp_size;
    num_items_ = (copies ? tokens - own : own) << log2_blocks_;
    const i32 first = args.first_sum_block % ex.num_blocks();
    item_ = ex.block() - first + (ex.block() < first ? ex.num_blocks() : 0);
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

}  // namespace moelink

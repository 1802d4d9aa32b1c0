// Lists visited in turns: the first item of each, then the second of each, and so on; lists that have ended are left out.
#pragma once

#include "moelink/device/primitives/warp.cuh"
#include "moelink/protocol/types.hpp"

namespace moelink {

class RoundRobin {
 public:
  struct Item {
    i32 list;
    i32 position;
  };

  /// `lengths`: [num_lists], in block scratch.
  MOELINK_DEVICE RoundRobin(const i32* lengths, i32 num_lists) : lengths_(lengths), num_lists_(num_lists) {}

  /// By one warp: items in all.
  template <class Exec>
  MOELINK_DEVICE i64 total(const Exec& ex) const {
    return first_of_round(ex, 0x7fffffff);
  }

  /// By one warp: item number `index`, which exists.
  template <class Exec>
  MOELINK_DEVICE Item find(const Exec& ex, i64 index) const {
    if (num_lists_ == 1) return {0, static_cast<i32>(index)};
    i32 round = 0;  // the last that begins at or before `index`
    i32 above = static_cast<i32>(index) + 1;
    while (above - round > 1) {
      const i32 middle = round + (above - round) / 2;
      if (first_of_round(ex, middle) <= index) {
        round = middle;
      } else {
        above = middle;
      }
    }
    return {list_in_round(ex, round, static_cast<i32>(index - first_of_round(ex, round))), round};
  }

 private:
  /// Items of the rounds before.
  template <class Exec>
  MOELINK_DEVICE i64 first_of_round(const Exec& ex, i32 round) const {
    u32 items = 0;
    for (i32 list = ex.lane(); list < num_lists_; list += Exec::kWarpSize) items += min_of(lengths_[list], round);
    return warp_sum(ex, items);
  }

  /// The list that comes `turn`-th of those that are longer than `round`.
  template <class Exec>
  MOELINK_DEVICE i32 list_in_round(const Exec& ex, i32 round, i32 turn) const {
    i32 before = 0;
    for (i32 first = 0; first < num_lists_; first += Exec::kWarpSize) {
      const i32 list = first + ex.lane();
      const bool alive = list < num_lists_ && lengths_[list] > round;
      const i32 below = before + static_cast<i32>(warp_exclusive_sum(ex, alive ? 1 : 0));
      const u32 found = warp_sum(ex, alive && below == turn ? static_cast<u32>(list) + 1 : 0);
      if (found != 0) return static_cast<i32>(found) - 1;
      before += static_cast<i32>(warp_sum(ex, alive ? 1 : 0));
    }
    return 0;
  }

  const i32* lengths_;
  i32 num_lists_;
};

}  // namespace moelink

// Which algorithm and grid an all-reduce runs with: a pure function of values that all ranks agree on, so that every
// rank chooses the same (a wire format must not depend on one rank's own numbers).
#pragma once

#include <string>

#include "moelink/all_reduce.hpp"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {

/// Compared over ranks at construction.
struct AllReduceFacts {
  int num_ranks = 1;
  Element element = Element::bfloat16;
  bool multicast = false;                    ///< every rank has the multicast mapping, and may use it
  int max_push_blocks = kMaxPushBlocks;      ///< the smallest of the ranks' budgets
  int max_pack_blocks = kMaxPackBlocks;      ///< likewise; 0: pack cannot be
  int max_staged_blocks = kMaxStagedBlocks;  ///< likewise
  bool on_host = false;
  AllReduceAlgorithm only = AllReduceAlgorithm::automatic;
};

struct AllReducePlan {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::push;
  int grid = 1;
  i64 num_steps = 1;      ///< staged algorithms
  i64 chunk_vectors = 0;  ///< all but push
  friend bool operator==(const AllReducePlan&, const AllReducePlan&) = default;
};

/// Most bytes per block and step of two-shot: each step costs some 5 us beside what it moves.
inline constexpr i32 kSlotBytes = 64 * 1024;

/// Longest message that the push algorithm can carry.
[[nodiscard]] constexpr i64 max_push_bytes(const AllReduceFacts& facts) {
  return facts.max_push_blocks * kPushSliceBytes;
}

/// Likewise for pack; 0 where it cannot be.
[[nodiscard]] constexpr i64 max_pack_bytes(const AllReduceFacts& facts) {
  return facts.max_pack_blocks * kPackSlotBytes;
}

/// `num_elements` > 0.
[[nodiscard]] AllReducePlan plan_all_reduce(const AllReduceFacts& facts, i64 num_elements);

/// "two_shot grid=128x512 chunk=32768".
[[nodiscard]] std::string to_string(const AllReducePlan& plan);

}  // namespace moelink

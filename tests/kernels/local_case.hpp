// One dispatch (and its combine) run by the kernels' own code on host threads, and compared with the reference.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/guarded.hpp"
#include "moelink/device/exec/spec.cuh"
#include "moelink/device/moe/local_combine.cuh"
#include "moelink/device/moe/local_decode.cuh"
#include "moelink/device/moe/local_move.cuh"
#include "moelink/device/moe/local_prefill.cuh"
#include "moelink/protocol/local_plan.hpp"
#include "reference/local_moe.hpp"
#include "runtime/block_team.hpp"

namespace moelink::test {

/// What is dispatched.
struct LocalCase {
  std::int64_t num_tokens = 0;
  std::int64_t num_experts = 0;
  int top_k = 1;
  std::int64_t row_bytes = 16;
  int scale_bytes = 0;
  int id_bytes = 4;
  Layout layout = Layout::packed;
  int alignment = 1;
  std::int64_t max_rows = -1;  ///< -1: as many as can be needed
  bool weighted = true;        ///< weights are given
  Element on_input = Element::none;
  bool zero_pads = false;
  std::int64_t device_count = -1;  ///< -1: none; else the device-side token count (any value)
  std::int64_t row_gap_bytes = 0;  ///< between rows, tokens and outputs
  std::vector<std::int64_t> ids = {};

  [[nodiscard]] std::int64_t entries() const { return num_tokens * top_k; }
  [[nodiscard]] std::int64_t actual_tokens() const {
    return device_count < 0 ? num_tokens : std::min(device_count, num_tokens);
  }
  [[nodiscard]] std::int64_t capacity() const {
    if (max_rows >= 0) return max_rows;
    if (layout == Layout::batched) return std::max<std::int64_t>(num_tokens * top_k, 1);
    const std::int64_t worst = entries() + std::min(num_experts, entries()) * (alignment - 1);
    return (worst + alignment - 1) / alignment * alignment;
  }
  [[nodiscard]] std::int64_t total_rows() const {
    return layout == Layout::packed ? capacity() : capacity() * num_experts;
  }
};

/// Ids of every kind: repeated within a token, unused, out of range on both sides.
inline std::vector<std::int64_t> random_ids(const LocalCase& c, std::mt19937_64& random, bool with_bad) {
  std::vector<std::int64_t> ids(c.entries());
  for (auto& id : ids) {
    id = static_cast<std::int64_t>(random() % c.num_experts);
    if (random() % 8 == 0) id = -1;
    if (with_bad && random() % 16 == 0) id = c.num_experts + static_cast<std::int64_t>(random() % 3);
    if (with_bad && random() % 16 == 0) id = -2 - static_cast<std::int64_t>(random() % 3);
    if (with_bad && c.id_bytes == 8 && random() % 16 == 0) id |= std::int64_t{1} << 40;
    if (random() % 4 == 0) id = std::min<std::int64_t>(id, 0);
  }
  return ids;
}

/// The buffers of one Exchange, as the kernels see them.
class LocalRun {
 public:
  explicit LocalRun(const LocalCase& c, unsigned seed = 1);

  /// Runs a variant with `grid` blocks on a team, with `parts` blocks a row.
  void dispatch(DispatchVariant variant, BlockTeam& team, int grid, int parts = 1, bool every_block_counts = false);
  /// Other tokens, for reused routing.
  void new_tokens(unsigned seed);
  void combine(BlockTeam& team, int grid, int parts, Element input, Element output, bool accumulate, bool weighted);

  void expect_routing();
  void expect_rows();
  /// What combine wrote against the reference.
  void expect_output(Element input, Element output, bool accumulate, bool weighted);

  LocalCase c;
  reference::Routing expected;
  LocalDispatchArgs args{};
  ExchangeStatus status{};
  std::uint64_t phase = 0;
  Guarded output;
  std::vector<unsigned char> output_before;
  std::int64_t hidden = 0;

 private:
  [[nodiscard]] std::vector<unsigned char> dense_tokens();

  GridBarrierWord barrier_{};
  std::int32_t device_count_ = 0;
  std::int32_t snapshot_ = 0;
  Guarded tokens_, scales_, ids_, weights_, rows_, row_scales_, offsets_, counts_, expert_of_row_, weight_of_row_,
      source_of_row_, row_of_entry_, weight_of_entry_, block_counts_;
  std::vector<unsigned char> expert_output_;
};

}  // namespace moelink::test

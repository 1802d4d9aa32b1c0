// One combine over ranks: the kernel's own code on host threads, tables as a dispatch would leave them, and what has to
// come out.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/guarded.hpp"
#include "kernels/pausing_exec.hpp"
#include "moelink/device/exec/spec.cuh"
#include "moelink/device/moe/nvlink_combine.cuh"
#include "moelink/device/moe/nvlink_combine_many.cuh"
#include "reference/element.hpp"
#include "runtime/block_team.hpp"

namespace moelink::test {

struct CombineCase {
  int num_ranks = 2;
  int tp_size = 1;
  std::vector<std::int64_t> tokens = {};  ///< of each group
  std::int64_t max_tokens = 8;
  int num_experts = 8;
  int top_k = 2;
  std::int64_t hidden = 32;
  Element input = Element::bfloat16;
  Element partial = Element::bfloat16;
  Element output = Element::bfloat16;
  bool accumulate = false;
  bool weighted = true;
  int one_in_dropped = 0;         ///< of so many entries one finds no room; 0: all do
  std::int64_t short_output = 0;  ///< so many rows fewer of expert output are given than exist
  std::int64_t bound_above = 0;   ///< the host's bound is above the token count by so many
  bool everything_to_rank_0 = false;
  int split = 0;        ///< 1: send and receive are launches of their own
  int grid = 2;         ///< blocks of a launch, run by as many threads
  int send_blocks = 1;  ///< NvlinkCombineArgs
  int send_rows = 0;    ///< likewise
  int sum_blocks = 1;
  int first_sum_block = 0;
  bool late_flags = false;
  int line_tokens = 3;  ///< NvlinkShape, of those that there are
  unsigned many = 0;    ///< bit r: rank r runs NvlinkCombineMany
  int lag_tokens = 0;   ///< NvlinkCombineArgs

  [[nodiscard]] int num_groups() const { return num_ranks / tp_size; }
  [[nodiscard]] NvlinkCombineSpec spec() const {
    return {.hidden = hidden,
            .num_ranks = num_ranks,
            .tp_size = tp_size,
            .top_k = top_k,
            .threads = 1,
            .input = input,
            .partial = partial,
            .output = output};
  }
  [[nodiscard]] NvlinkShape shape() const;
};

/// All ranks of one case. Symmetric memory and epochs stay from call to call; contents and tables are new for each.
class CombineRanks {
 public:
  explicit CombineRanks(const CombineCase& c);

  /// Draws ids, rows and weights, fills the tables, and garbage where nothing is defined. The shape of memory must be
  /// the first case's.
  void draw(const CombineCase& c, unsigned seed);
  /// Counts a dispatch as done and runs the combine of one rank.
  void run(int rank, BlockTeam& team, const Pauses& pauses = {}) { run(rank, team, pauses, c_.spec()); }
  void run(int rank, BlockTeam& team, const Pauses& pauses, const NvlinkCombineSpec& spec);
  /// What every rank wrote, against the sum in the documented order.
  void expect_outputs(const std::string& where);

  struct Rank {
    std::vector<Vec16> symmetric;
    std::vector<u64> epochs;
    u64 calls = 0;
    std::vector<i32> slot_of_token, token_of_slot, num_sent, num_received, source_tokens, received_token, row_of_entry,
        dropped;
    std::vector<float> weight_of_entry;
    std::vector<unsigned char> expert_output;
    std::int64_t num_rows = 0;
    std::int64_t dropped_elsewhere = 0;
    Guarded output;
    std::vector<unsigned char> output_before;
    i32 num_tokens = 0;
    u64 phase = 0;
    ExchangeStatus status{};
    u64 fault_word = 0;
    FaultRecord record{};
  };
  [[nodiscard]] Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  u64 timeout_ns = FaultContext::kDefaultTimeoutNs;

 private:
  [[nodiscard]] NvlinkCombineArgs args_of(int rank);
  void draw_group(int group, std::mt19937_64& random);
  void sum_token(int rank, int group, std::int64_t token, unsigned char* output);

  CombineCase c_;
  NvlinkShape shape_;
  NvlinkLayout layout_;
  std::vector<Rank> ranks_;
};

}  // namespace moelink::test

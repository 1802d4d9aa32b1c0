// What dispatch and combine must produce, one row at a time, from the seed of the tokens and the routing alone. Shares
// no code with the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "moelink/types.hpp"
#include "perf/common/payload.hpp"
#include "perf/common/routing.hpp"
#include "perf/reference/mismatch.hpp"
#include "perf/reference/row_plan.hpp"

namespace moelink::perf {

/// One rank's part of a dispatch, its experts and its combine.
struct MoeCase {
  const Sources* sources = nullptr;
  const Placement* placement = nullptr;
  const RowPlan* plan = nullptr;          ///< of this rank
  std::vector<RandomMatrix> tokens = {};  ///< of each source
  std::vector<RandomMatrix> scales = {};  ///< of each source; no row_bytes: none
  WeightMode weight_mode = WeightMode::on_combine;
  std::int64_t hidden = 0;
  DataType expert_output = DataType::bfloat16;
  DataType output = DataType::bfloat16;
  /// A rank's part of a sum is rounded to the type of the expert output before it is added to the others' parts.
  bool rounded_parts = false;
  /// Parts may have been added, and sums rounded, in any order: values may be off by that, relative to the magnitudes.
  bool order_is_free = false;

  [[nodiscard]] int source() const { return placement->source_of(plan->rank); }
  [[nodiscard]] const Routing& routing() const { return (*sources)[source()]; }
  [[nodiscard]] const RandomMatrix& own_tokens() const { return tokens[static_cast<std::size_t>(source())]; }
  [[nodiscard]] const RandomMatrix& own_scales() const { return scales[static_cast<std::size_t>(source())]; }
};

/// Compares `count` dispatched rows from `first_row` on (dense, in host memory) with what they must hold, bit by bit.
/// Pads may hold anything.
void check_rows(const MoeCase& moe, std::int64_t first_row, std::int64_t count, const std::byte* rows, Team& team,
                Mismatches& mismatches);

/// The same for scales.
void check_scales(const MoeCase& moe, std::int64_t first_row, std::int64_t count, const std::byte* scales, Team& team,
                  Mismatches& mismatches);

/// Runs the experts: dispatched rows in, expert outputs out (same positions; may be the same memory if the types are of
/// one size). Pads are left alone.
void apply_experts(const MoeCase& moe, std::int64_t first_row, std::int64_t count, const std::byte* rows,
                   std::byte* expert_output, Team& team);

/// Compares `count` output rows from token `first_token` of this rank's source on (dense, in host memory) with the
/// documented sum, bit by bit: the ranks' parts added in the order of ranks, each part in the order of k.
void check_output(const MoeCase& moe, std::int64_t first_token, std::int64_t count, const std::byte* output, Team& team,
                  Mismatches& mismatches);

}  // namespace moelink::perf

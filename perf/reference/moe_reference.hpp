// What dispatch and combine must produce, one row at a time, from the seed of the tokens and the routing alone. Shares
// no code with the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "moelink/types.hpp"
#include "perf/common/payload.hpp"
#include "perf/common/routing.hpp"
#include "perf/reference/block_format.hpp"
#include "perf/reference/mismatch.hpp"
#include "perf/reference/relative_error.hpp"
#include "perf/reference/row_plan.hpp"

namespace moelink::perf {

/// One rank's part of a dispatch, its experts and its combine.
struct MoeCase {
  const Sources* sources = nullptr;
  const Placement* placement = nullptr;
  const RowPlan* plan = nullptr;          ///< of this rank
  std::vector<RandomMatrix> tokens = {};  ///< of each source
  std::vector<RandomMatrix> scales = {};  ///< of each source; no row_bytes: none
  BlockFormat format = {};  ///< what tokens become on their way to the experts; then there are no `scales`
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
  [[nodiscard]] bool is_quantized() const { return format.name != Quantization::none; }
  /// Of dispatched rows: what they are made of, bytes of one, and of its scales.
  [[nodiscard]] DataType row_type() const { return is_quantized() ? DataType::bytes : own_tokens().type; }
  [[nodiscard]] std::int64_t row_bytes() const {
    return is_quantized() ? format.row_bytes(hidden) : own_tokens().row_bytes;
  }
  [[nodiscard]] std::int64_t scale_bytes() const {
    return is_quantized()   ? format.scale_bytes(hidden)
           : scales.empty() ? 0
                            : scales[static_cast<std::size_t>(source())].row_bytes;
  }
  /// A token's row as it is dispatched, not weighted, and its scales.
  void make_row(int source, std::int64_t token, std::byte* to) const;
  void make_scales(int source, std::int64_t token, std::byte* to) const;
};

/// Compares `count` dispatched rows from `first_row` on (dense, in host memory) with what they must hold, bit by bit.
/// Pads may hold anything.
void check_rows(const MoeCase& moe, std::int64_t first_row, std::int64_t count, const std::byte* rows, Team& team,
                Mismatches& mismatches);

/// The same for scales.
void check_scales(const MoeCase& moe, std::int64_t first_row, std::int64_t count, const std::byte* scales, Team& team,
                  Mismatches& mismatches);

/// Runs the experts: dispatched rows in, with their scales if they are quantised, expert outputs out (same positions;
/// may be the same memory if the types are of one size). Pads are left alone.
void apply_experts(const MoeCase& moe, std::int64_t first_row, std::int64_t count, const std::byte* rows,
                   const std::byte* scales, std::byte* expert_output, Team& team);

/// Compares `count` output rows from token `first_token` of this rank's source on (dense, in host memory) with the
/// documented sum, bit by bit: the ranks' parts added in the order of ranks, each part in the order of k. `error`: gets
/// what they are off from the same sum over tokens that were not quantised.
void check_output(const MoeCase& moe, std::int64_t first_token, std::int64_t count, const std::byte* output, Team& team,
                  Mismatches& mismatches, RelativeError* error = nullptr);

}  // namespace moelink::perf

// A configuration that has been checked, and the numbers that follow from it.
#pragma once

#include <algorithm>
#include <vector>

#include "comm/agree.hpp"
#include "moelink/exchange.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

struct ExchangeShape {
  Mode mode = Mode::local;  ///< never automatic
  int rank = 0;
  int num_ranks = 1;
  std::vector<int> nodes{};    ///< p2p over several nodes: the node of each rank; else empty, every rank is a peer
  int num_sources = 1;         ///< ranks, or groups of ranks, whose tokens differ: 1 where inputs are replicated
  i64 num_experts = 0;         ///< what ids name
  i64 num_places = 0;          ///< physical experts over all ranks: num_experts, or as configured
  i64 first_expert = 0;        ///< of this rank, among the places
  i64 num_local_experts = 0;   ///< may be 0 if there are fewer places than ranks
  i64 num_kernel_experts = 0;  ///< at least 1: kernels and buffers of a rank without experts have one that no id names
  int top_k = 0;
  i64 hidden = 0;
  i64 max_tokens = 0;
  i64 max_entries = 0;           ///< max_tokens * top_k: entries of this rank's tokens
  i64 max_rows = 0;              ///< packed: rows in all; 0: packed is not used
  i64 max_rows_per_expert = 0;   ///< batched: rows of each expert; 0: batched is not used
  i64 row_capacity = 0;          ///< rows that the buffers hold: enough for either layout
  i64 max_row_bytes = 0;         ///< widest payload row
  i64 max_scale_bytes = 0;       ///< most scale bytes of a payload
  i64 max_quantized_bytes = 0;   ///< widest row, with its scales, of a payload that dispatch quantises
  i64 max_output_row_bytes = 0;  ///< widest row of expert output

  /// Ranks of other nodes.
  [[nodiscard]] int num_remotes() const {
    return static_cast<int>(
        std::ranges::count_if(nodes, [&](int node) { return node != nodes[static_cast<std::size_t>(rank)]; }));
  }
};

/// Throws invalid_argument, naming value, expectation and what to do, if the configuration cannot be used.
[[nodiscard]] ExchangeShape check_config(const ExchangeConfig& config, const Communicator& communicator);

/// Every field of a configuration in words, to be compared over ranks.
[[nodiscard]] std::vector<ConfigField> fields_of(const ExchangeConfig& config);

/// The first expert of `rank` if `num_experts` are spread over `num_ranks`; rank num_ranks: num_experts.
[[nodiscard]] constexpr i64 first_expert_of(int rank, int num_ranks, i64 num_experts) noexcept {
  return num_experts * rank / num_ranks;
}

/// The same configuration as the modes see it: rows that dispatch quantises are opaque, with scales.
[[nodiscard]] ExchangeConfig carried_config(const ExchangeConfig& config);
[[nodiscard]] Payload carried(const Payload& payload, i64 hidden);

/// Bytes of one row of a payload that is not quantised: hidden elements, or the opaque row.
[[nodiscard]] constexpr i64 row_bytes_of(const Payload& payload, i64 hidden) noexcept {
  return payload.type == DataType::bytes ? payload.row_bytes : hidden * static_cast<i64>(size_of(payload.type));
}

/// Rows move in units of 16 bytes; scales in units of the largest power of two, at most 16, that divides their bytes.
inline constexpr i64 kRowUnitBytes = 16;
[[nodiscard]] constexpr i64 scale_unit_bytes(i64 scale_bytes) noexcept {
  return scale_bytes == 0 ? 1 : min_of<i64>(kRowUnitBytes, scale_bytes & -scale_bytes);
}

/// "bf16 rows of 2048 elements", "opaque rows of 7168 bytes with 224 scale bytes".
[[nodiscard]] std::string describe(const Payload& payload, i64 hidden);

}  // namespace moelink

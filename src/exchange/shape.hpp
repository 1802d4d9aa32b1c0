// A configuration that has been checked, and the numbers that follow from it.
#pragma once

#include "moelink/exchange.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

struct ExchangeShape {
  i64 num_experts = 0;
  i64 num_local_experts = 0;
  int top_k = 0;
  i64 hidden = 0;
  i64 max_tokens = 0;
  i64 max_entries = 0;           ///< max_tokens * top_k
  i64 max_rows = 0;              ///< packed: rows in all; 0: packed is not used
  i64 max_rows_per_expert = 0;   ///< batched: rows of each expert; 0: batched is not used
  i64 row_capacity = 0;          ///< rows that the buffers hold: enough for either layout
  i64 max_row_bytes = 0;         ///< widest payload row
  i64 max_scale_bytes = 0;       ///< most scale bytes of a payload
  i64 max_output_row_bytes = 0;  ///< widest row of expert output
};

/// Throws invalid_argument, naming value, expectation and what to do, if the configuration cannot be used.
[[nodiscard]] ExchangeShape check_config(const ExchangeConfig& config, const Communicator& communicator);

/// Bytes of one row of a payload: hidden elements, or the opaque row.
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

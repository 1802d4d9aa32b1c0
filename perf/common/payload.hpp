// Token data: random, finite, never zero (zeros run faster than data), of moderate size, and reproducible row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "moelink/buffer.hpp"
#include "moelink/types.hpp"
#include "perf/common/team.hpp"

namespace moelink::perf {

/// A matrix that exists only as a seed. Typed values have magnitudes in [0.125, 2); `bytes` are any byte.
struct RandomMatrix {
  DataType type = DataType::bfloat16;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::uint64_t seed = 0;

  /// Writes row `row`: `row_bytes` bytes.
  void make_row(std::int64_t row, std::byte* to) const;
};

/// Fills device memory with the dense matrix and waits for it. Works in pieces, so that a copy on the host stays small.
void upload(const RandomMatrix& matrix, void* to, StreamView stream, Team& team);

}  // namespace moelink::perf

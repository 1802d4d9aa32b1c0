// Token data: random, finite, never zero (zeros run faster than data), of moderate size, and reproducible row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "moelink/buffer.hpp"
#include "moelink/types.hpp"
#include "perf/common/team.hpp"

namespace moelink::perf {

/// A matrix that exists only as a seed. Typed values have magnitudes in [0.125, 2); `bytes` are any byte. Varied
/// values, of bf16, have every sixteen neighbours in another range, up to 2^-7 lower: no two blocks of them are alike.
struct RandomMatrix {
  DataType type = DataType::bfloat16;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::uint64_t seed = 0;
  bool varied = false;

  /// Writes row `row`: `row_bytes` bytes.
  void make_row(std::int64_t row, std::byte* to) const;
};

/// Fills device memory with the dense matrix and waits for it. Works in pieces, so that a copy on the host stays small.
void upload(const RandomMatrix& matrix, void* to, StreamView stream, Team& team);

/// The same for rows that `make_row(row, to)` makes, on any of the team's threads.
void upload_rows(std::int64_t rows, std::int64_t row_bytes,
                 const std::function<void(std::int64_t row, std::byte* to)>& make_row, void* to, StreamView stream,
                 Team& team);

}  // namespace moelink::perf

#include "perf/common/payload.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "perf/common/random.hpp"

namespace moelink::perf {
namespace {

// Sign, the two lowest exponent bits and the mantissa are random; the rest of the exponent is fixed, for 0.125 .. 2.
struct BitPattern {
  std::uint64_t random;
  std::uint64_t fixed;
};

constexpr BitPattern pattern_of(DataType type) {
  switch (type) {
    case DataType::bfloat16:
      return {0x81FF81FF81FF81FFULL, 0x3E003E003E003E00ULL};
    case DataType::float16:
      return {0x8FFF8FFF8FFF8FFFULL, 0x3000300030003000ULL};
    case DataType::float32:
      return {0x81FFFFFF81FFFFFFULL, 0x3E0000003E000000ULL};
    case DataType::bytes:
      break;
  }
  return {~0ULL, 0};
}

constexpr std::int64_t kStagingBytes = std::int64_t{64} << 20;

}  // namespace

void RandomMatrix::make_row(std::int64_t row, std::byte* to) const {
  const BitPattern pattern = pattern_of(type);
  const std::int64_t words_per_row = (row_bytes + 7) / 8;
  const auto first = static_cast<std::uint64_t>(row * words_per_row);
  for (std::int64_t word = 0; word < words_per_row; ++word) {
    const std::uint64_t value =
        (random_bits(seed, first + static_cast<std::uint64_t>(word)) & pattern.random) | pattern.fixed;
    std::memcpy(to + word * 8, &value, static_cast<std::size_t>(std::min<std::int64_t>(8, row_bytes - word * 8)));
  }
}

void upload(const RandomMatrix& matrix, void* to, StreamView stream, Team& team) {
  if (matrix.rows == 0) return;
  auto* out = static_cast<std::byte*>(to);
  if (stream.device().is_host()) {
    stream.synchronize();
    team.for_ranges(matrix.rows, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        matrix.make_row(row, out + row * matrix.row_bytes);
      }
    });
    return;
  }
  const std::int64_t rows_at_once = std::clamp<std::int64_t>(kStagingBytes / matrix.row_bytes, 1, matrix.rows);
  std::vector<std::byte> staging(static_cast<std::size_t>(rows_at_once * matrix.row_bytes));
  for (std::int64_t start = 0; start < matrix.rows; start += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, matrix.rows - start);
    team.for_ranges(count, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        matrix.make_row(start + row, staging.data() + row * matrix.row_bytes);
      }
    });
    copy_bytes(out + start * matrix.row_bytes, staging.data(), static_cast<std::size_t>(count * matrix.row_bytes),
               stream);
    stream.synchronize();
  }
}

}  // namespace moelink::perf

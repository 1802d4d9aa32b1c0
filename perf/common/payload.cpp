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
    const std::uint64_t at = first + static_cast<std::uint64_t>(word);
    std::uint64_t value = (random_bits(seed, at) & pattern.random) | pattern.fixed;
    // A power of two less for four words: bf16's exponents lie above its seven bits of mantissa, and are at least 124.
    if (varied) value -= random_bits(seed + 1, at / 4) % 8 * 0x0080008000800080ULL;
    std::memcpy(to + word * 8, &value, static_cast<std::size_t>(std::min<std::int64_t>(8, row_bytes - word * 8)));
  }
}

void upload(const RandomMatrix& matrix, void* to, StreamView stream, Team& team) {
  upload_rows(
      matrix.rows, matrix.row_bytes, [&](std::int64_t row, std::byte* out) { matrix.make_row(row, out); }, to, stream,
      team);
}

void upload_rows(std::int64_t rows, std::int64_t row_bytes,
                 const std::function<void(std::int64_t row, std::byte* to)>& make_row, void* to, StreamView stream,
                 Team& team) {
  if (rows == 0) return;
  const auto make_rows = [&](std::int64_t start, std::int64_t count, std::byte* out) {
    team.for_ranges(count, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) make_row(start + row, out + row * row_bytes);
    });
  };
  auto* out = static_cast<std::byte*>(to);
  if (stream.device().is_host()) {
    stream.synchronize();
    make_rows(0, rows, out);
    return;
  }
  const std::int64_t rows_at_once = std::clamp<std::int64_t>(kStagingBytes / row_bytes, 1, rows);
  std::vector<std::byte> staging(static_cast<std::size_t>(rows_at_once * row_bytes));
  for (std::int64_t start = 0; start < rows; start += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, rows - start);
    make_rows(start, count, staging.data());
    copy_bytes(out + start * row_bytes, staging.data(), static_cast<std::size_t>(count * row_bytes), stream);
    stream.synchronize();
  }
}

}  // namespace moelink::perf

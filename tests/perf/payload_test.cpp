#include "perf/common/payload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

namespace moelink::perf {
namespace {

template <class Bits>
std::vector<Bits> row_of(const RandomMatrix& matrix, std::int64_t row) {
  std::vector<Bits> values(static_cast<std::size_t>(matrix.row_bytes) / sizeof(Bits));
  matrix.make_row(row, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

TEST(RandomMatrix, ValuesAreNeverZeroAndOfModerateSize) {
  for (const std::uint16_t bits : row_of<std::uint16_t>({DataType::bfloat16, 1, 8192, 5}, 0)) {
    EXPECT_GE(bits & 0x7FFF, 0x3E00);  // 0.125
    EXPECT_LT(bits & 0x7FFF, 0x4000);  // 2
  }
  for (const std::uint16_t bits : row_of<std::uint16_t>({DataType::float16, 1, 8192, 5}, 0)) {
    EXPECT_GE(bits & 0x7FFF, 0x3000);
    EXPECT_LT(bits & 0x7FFF, 0x4000);
  }
  for (const float value : row_of<float>({DataType::float32, 1, 8192, 5}, 0)) {
    EXPECT_GE(std::abs(value), 0.125F);
    EXPECT_LT(std::abs(value), 2.0F);
  }
}

TEST(RandomMatrix, VariedBlocksHaveManyRanges) {
  const auto row = row_of<std::uint16_t>({DataType::bfloat16, 1, 8192, 5, true}, 0);
  std::set<int> largest_exponents;
  for (std::size_t begin = 0; begin < row.size(); begin += 16) {
    int largest = 0;
    for (std::size_t i = begin; i < begin + 16; ++i) {
      const int exponent = (row[i] & 0x7FFF) >> 7;
      EXPECT_GE(exponent, 124 - 7);
      EXPECT_LE(exponent, 127);
      largest = std::max(largest, exponent);
    }
    largest_exponents.insert(largest);
  }
  EXPECT_GE(largest_exponents.size(), 8U);
}

TEST(RandomMatrix, RowsAndSeedsDiffer) {
  const RandomMatrix matrix{DataType::bytes, 3, 60, 5};  // 60: not whole words
  EXPECT_EQ(row_of<std::uint8_t>(matrix, 1), row_of<std::uint8_t>(matrix, 1));
  EXPECT_NE(row_of<std::uint8_t>(matrix, 0), row_of<std::uint8_t>(matrix, 1));
  EXPECT_NE(row_of<std::uint8_t>(matrix, 0), row_of<std::uint8_t>({DataType::bytes, 3, 60, 6}, 0));
}

TEST(Upload, EveryRowArrivesAndNothingBehindThem) {
  Team team(2);
  Stream stream(Device::host());
  const RandomMatrix matrix{DataType::bfloat16, 100, 48, 9};
  std::vector<std::uint8_t> memory(101 * 48, 0xEE);
  upload(matrix, memory.data(), stream, team);
  for (std::int64_t row = 0; row < 100; ++row) {
    EXPECT_EQ(std::memcmp(row_of<std::uint8_t>(matrix, row).data(), memory.data() + row * 48, 48), 0) << row;
  }
  EXPECT_EQ(std::vector<std::uint8_t>(memory.end() - 48, memory.end()), std::vector<std::uint8_t>(48, 0xEE));
}

}  // namespace
}  // namespace moelink::perf

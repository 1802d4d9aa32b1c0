// The formats of moe_perf's check against ml_dtypes (tests/data/quantize/make.py), and back.
#include "perf/reference/block_format.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "perf/reference/element.hpp"
#include "quantize/fixture.hpp"

namespace moelink::perf {
namespace {

constexpr float kTensorScale = 0.0625F;  // as in make.py
constexpr std::int64_t kColumns = 512;

class BlockFormatTest : public testing::TestWithParam<Quantization> {
 protected:
  const BlockFormat format_{.name = GetParam(),
                            .tensor_scale = GetParam() == Quantization::nvfp4 ? kTensorScale : 1.0F};
};

/// Rows of the fixture that hold neither infinities nor NaNs.
std::vector<std::pair<std::int64_t, std::vector<float>>> finite_rows() {
  const test::Bytes raw = test::read_fixture("blocks_bf16.bin");
  std::vector<std::pair<std::int64_t, std::vector<float>>> rows;
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(raw.size()) / (2 * kColumns); ++row) {
    std::vector<float> values;
    for (std::int64_t i = row * kColumns; i < (row + 1) * kColumns; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, raw.data() + 2 * i, 2);
      values.push_back(BFloat16::load(bits));
    }
    if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) rows.emplace_back(row, values);
  }
  return rows;
}

TEST_P(BlockFormatTest, BlocksAreThoseOfAnotherImplementation) {
  const std::string name(name_of(GetParam()));
  const test::Bytes elements = test::read_fixture("blocks_" + name + "_elements.bin");
  const test::Bytes scales = test::read_fixture("blocks_" + name + "_scales.bin");
  const std::int64_t row_bytes = format_.row_bytes(kColumns);
  const std::int64_t scale_bytes = format_.scale_bytes(kColumns);
  const auto rows = finite_rows();
  ASSERT_GT(rows.size(), 10U);
  for (const auto& [row, values] : rows) {
    std::vector<std::byte> got(static_cast<std::size_t>(row_bytes));
    std::vector<std::byte> got_scales(static_cast<std::size_t>(scale_bytes));
    format_.quantize(values, got.data(), got_scales.data());
    EXPECT_EQ(std::memcmp(got.data(), elements.data() + row * row_bytes, got.size()), 0) << row;
    EXPECT_EQ(std::memcmp(got_scales.data(), scales.data() + row * scale_bytes, got_scales.size()), 0) << row;
  }
}

/// Not nearer either: then nothing would have been rounded.
TEST_P(BlockFormatTest, ValuesComeBackAsNearAsTheFormatIs) {
  std::vector<float> values;
  for (int i = 0; i < 400; ++i) values.push_back(std::ldexp(std::sin(static_cast<float>(i)), i / 16 % 5 - 3));
  std::vector<std::byte> elements(static_cast<std::size_t>(format_.row_bytes(400)));
  std::vector<std::byte> scales(static_cast<std::size_t>(format_.scale_bytes(400)));
  format_.quantize(values, elements.data(), scales.data());
  std::vector<float> back(values.size());
  format_.dequantize(elements.data(), scales.data(), back);
  const bool is_fp4 = elements.size() * 2 == values.size();
  double differences = 0;
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    differences += (back[i] - values[i]) * (back[i] - values[i]);
    squares += values[i] * values[i];
    EXPECT_LE(std::abs(back[i]), 8.0F);
  }
  const double error = std::sqrt(differences / squares);
  EXPECT_GT(error, is_fp4 ? 0.03 : 0.005);
  EXPECT_LT(error, is_fp4 ? 0.2 : 0.08);
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockFormatTest,
                         testing::Values(Quantization::fp8, Quantization::fp8_pow2, Quantization::mxfp8,
                                         Quantization::mxfp4, Quantization::nvfp4),
                         [](const auto& format) { return std::string(name_of(format.param)); });

}  // namespace
}  // namespace moelink::perf

// Conversions against a reference that works with exact values instead of bits.
#include "moelink/device/primitives/convert.cuh"
#include "moelink/device/primitives/host_fp16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace moelink {
namespace {

/// A 16-bit format as arithmetic: the value of a pattern is computed in double, and rounding looks for the nearest
/// pattern.
struct Format {
  int exponent_bits;
  int mantissa_bits;

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] u16 infinity() const { return static_cast<u16>(((1 << exponent_bits) - 1) << mantissa_bits); }

  /// Also for the pattern of infinity, as if it were finite: the value at which rounding passes the largest one.
  [[nodiscard]] double finite_value(u16 magnitude) const {
    const int exponent = magnitude >> mantissa_bits;
    const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
    return exponent == 0 ? std::ldexp(mantissa, 1 - bias() - mantissa_bits)
                         : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias() - mantissa_bits);
  }
  [[nodiscard]] double value(u16 bits) const {
    const u16 magnitude = bits & 0x7fff;
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (magnitude > infinity()) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    return sign * (magnitude == infinity() ? std::numeric_limits<double>::infinity() : finite_value(magnitude));
  }
  /// Nearest pattern, ties to the even one, by bisection over the patterns.
  [[nodiscard]] u16 nearest(double value) const {
    const u16 sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    int low = 0;
    int high = infinity();
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (finite_value(static_cast<u16>(middle)) <= magnitude ? low : high) = middle;
    }
    const double to_low = magnitude - finite_value(static_cast<u16>(low));
    const double to_high = finite_value(static_cast<u16>(high)) - magnitude;
    const bool up = to_high < to_low || (to_high == to_low && high % 2 == 0);
    return static_cast<u16>((up ? high : low) | sign);
  }
};

constexpr Format kBf16{8, 7};
constexpr Format kFp16{5, 10};

template <Element E>
constexpr Format kFormat = E == Element::bfloat16 ? kBf16 : kFp16;

template <Element E>
void expect_exact_to_float() {
  for (u32 bits = 0; bits < 65536; ++bits) {
    const float value = to_float<E>(static_cast<u16>(bits));
    const double expected = kFormat<E>.value(static_cast<u16>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), expected) << std::hex << bits;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << std::hex << bits;
    }
  }
}

template <Element E>
void expect_rounded(float value) {
  const u16 bits = from_float<E>(value);
  if (std::isnan(value)) {
    ASSERT_EQ(bits, 0x7fff);
  } else if (std::isinf(value)) {
    ASSERT_EQ(bits, kFormat<E>.infinity() | (value < 0 ? 0x8000 : 0));
  } else {
    ASSERT_EQ(bits, kFormat<E>.nearest(value)) << std::hexfloat << value;
  }
}

/// Every pattern, the ties between neighbours, and the floats next to both.
template <Element E>
void expect_nearest_even() {
  for (u32 bits = 0; bits < 65536; ++bits) {
    const auto magnitude = static_cast<u16>(bits & 0x7fff);
    const double sign = bits < 0x8000 ? 1.0 : -1.0;
    if (magnitude >= kFormat<E>.infinity()) {
      continue;
    }
    const double here = kFormat<E>.finite_value(magnitude);
    const double next = kFormat<E>.finite_value(static_cast<u16>(magnitude + 1));
    const auto exact = static_cast<float>(sign * here);
    const auto tie = static_cast<float>(sign * (here + next) / 2);
    ASSERT_EQ(from_float<E>(exact), bits);
    expect_rounded<E>(tie);
    for (const float from : {exact, tie}) {
      expect_rounded<E>(std::nextafterf(from, std::numeric_limits<float>::infinity()));
      expect_rounded<E>(std::nextafterf(from, -std::numeric_limits<float>::infinity()));
    }
  }
}

TEST(Convert, EveryBf16PatternHasItsExactValue) { expect_exact_to_float<Element::bfloat16>(); }
TEST(Convert, EveryFp16PatternHasItsExactValue) { expect_exact_to_float<Element::float16>(); }
TEST(Convert, FloatsRoundToTheNearestBf16TiesToEven) { expect_nearest_even<Element::bfloat16>(); }
TEST(Convert, FloatsRoundToTheNearestFp16TiesToEven) { expect_nearest_even<Element::float16>(); }

TEST(Convert, FloatsAllOverTheRangeRoundToTheNearest) {
  for (u64 bits = 0; bits < u64{1} << 32; bits += u64{65521} * 3) {  // a prime step: mantissas of all kinds
    const float value = float_from_bits(static_cast<u32>(bits));
    expect_rounded<Element::bfloat16>(value);
    expect_rounded<Element::float16>(value);
  }
  for (const float value :
       {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(), 65504.0F, 65519.0F, 65520.0F,
        65536.0F, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), float_from_bits(0x7f800001), float_from_bits(0xffffffff)}) {
    expect_rounded<Element::bfloat16>(value);
    expect_rounded<Element::float16>(value);
  }
}

TEST(HostFp16, ArraysHaveTheBitsOfSingleElements) {
  if (!host_has_f16c()) GTEST_SKIP() << "the processor has no F16C";
  std::vector<u16> patterns;
  for (u32 bits = 0; bits < 65536 + 3; ++bits) patterns.push_back(static_cast<u16>(bits));  // and a rest of three
  std::vector<float> values(patterns.size());
  host_widen_fp16(values.data(), patterns.data(), static_cast<i64>(patterns.size()));
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const float expected = float_from_fp16(patterns[i]);
    ASSERT_TRUE(std::isnan(expected) ? std::isnan(values[i]) : float_bits(values[i]) == float_bits(expected)) << i;
  }
  values.clear();
  for (u64 bits = 0; bits < u64{1} << 32; bits += 4093) values.push_back(float_from_bits(static_cast<u32>(bits)));
  for (const float special : {65519.0F, 65520.0F, 65536.0F, -65520.0F, HUGE_VALF, -HUGE_VALF, 0x1p-24F, 0x1p-25F}) {
    for (const float toward : {HUGE_VALF, -HUGE_VALF}) values.push_back(std::nextafterf(special, toward));
    values.push_back(special);
  }
  std::vector<u16> rounded(values.size());
  host_narrow_to_fp16(rounded.data(), values.data(), static_cast<i64>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(rounded[i], fp16_from_float(values[i])) << std::hexfloat << values[i];
  }
}

TEST(Sums, AreMultiplyThenAddBothRounded) {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: a fused multiply-add would keep the last term.
  const float a = 1.0F + 0x1p-12F;
  EXPECT_EQ(add_rn(mul_rn(a, a), -(1.0F + 0x1p-11F)), 0.0F);
}

}  // namespace
}  // namespace moelink

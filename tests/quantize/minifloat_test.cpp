// Conversions to and from e4m3, e2m1 and e8m0, against another implementation.
#include "moelink/device/primitives/minifloat.cuh"

#include <gtest/gtest.h>

#include <cmath>

#include "moelink/device/primitives/quantize.cuh"
#include "quantize/fixture.hpp"

namespace moelink::test {
namespace {

TEST(Minifloat, E4m3IsThatOfAnotherImplementationForEveryBf16) {
  const Bytes expected = read_fixture("e4m3_of_bf16.bin");
  ASSERT_EQ(expected.size(), 65536U);
  for (u32 bits = 0; bits < 65536; ++bits) {
    ASSERT_EQ(e4m3_from_float_in_software(float_from_bf16(static_cast<u16>(bits))), expected[bits]) << std::hex << bits;
  }
}

TEST(Minifloat, E2m1IsThatOfAnotherImplementationForEveryBf16) {
  const Bytes expected = read_fixture("e2m1_of_bf16.bin");
  ASSERT_EQ(expected.size(), 65536U);
  for (u32 bits = 0; bits < 65536; ++bits) {
    ASSERT_EQ(e2m1_from_float_in_software(float_from_bf16(static_cast<u16>(bits))), expected[bits]) << std::hex << bits;
  }
}

TEST(Minifloat, WhatIsRepresentableComesBack) {
  for (u32 code = 0; code < 256; ++code) {
    const auto byte = static_cast<u8>(code);
    if ((code & 0x7f) == kNanE4m3) {
      EXPECT_TRUE(std::isnan(float_from_e4m3(byte)));
      EXPECT_EQ(e4m3_from_float_in_software(float_from_e4m3(byte)), kNanE4m3);
    } else {
      EXPECT_EQ(e4m3_from_float_in_software(float_from_e4m3(byte)), byte);
    }
  }
  for (u32 code = 0; code < 16; ++code) {
    EXPECT_EQ(e2m1_from_float_in_software(float_from_e2m1(static_cast<u8>(code))), code);
  }
  EXPECT_EQ(float_from_e4m3(0x7e), kLargestE4m3);
  EXPECT_EQ(float_from_e2m1(0x7), kLargestE2m1);
  EXPECT_EQ(float_from_e8m0(0), 0x1p-127F);
  EXPECT_EQ(float_from_e8m0(127), 1.0F);
  EXPECT_TRUE(std::isnan(float_from_e8m0(kNanE8m0)));
}

TEST(Minifloat, TiesGoToEvenBeyondBf16) {
  // Between 1 and 1.125, and one unit of fp32 to either side of the tie: bits that bf16 cannot have.
  const float tie = 1.0625F;
  EXPECT_EQ(e4m3_from_float_in_software(tie), 0x38);
  EXPECT_EQ(e4m3_from_float_in_software(std::nextafter(tie, 2.0F)), 0x39);
  EXPECT_EQ(e4m3_from_float_in_software(std::nextafter(1.1875F, 0.0F)), 0x39);
  EXPECT_EQ(e4m3_from_float_in_software(1.1875F), 0x3a);
  EXPECT_EQ(e2m1_from_float_in_software(std::nextafter(2.5F, 3.0F)), 0x5);
  EXPECT_EQ(e2m1_from_float_in_software(2.5F), 0x4);
}

TEST(Minifloat, PowersOfTwoAndExponentsAgree) {
  for (int e = -148; e <= 127; ++e) {
    EXPECT_EQ(power_of_two(e), std::ldexp(1.0F, e));
    EXPECT_EQ(exponent_of(std::ldexp(1.0F, e)), e);
    EXPECT_EQ(exponent_of(std::nextafter(std::ldexp(1.0F, e), 0.0F)),
              e > -149 ? (e <= -126 && e == -148 ? -149 : e - 1) : e);
  }
}

}  // namespace
}  // namespace moelink::test

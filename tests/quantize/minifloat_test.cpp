// Conversions to and from e4m3, e2m1 and e8m0, against another implementation.
#include "moelink/device/primitives/minifloat.cuh"

#include <gtest/gtest.h>

#include <algorithm>
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
  // Where e2m1 rounds: to the even code at the tie, to the nearest a unit of fp32 beside it.
  constexpr float kTies[] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  for (int below = 0; below < 7; ++below) {
    const float e2m1_tie = kTies[below];
    EXPECT_EQ(e2m1_from_float_in_software(std::nextafter(e2m1_tie, 0.0F)), below) << e2m1_tie;
    EXPECT_EQ(e2m1_from_float_in_software(e2m1_tie), below + below % 2) << e2m1_tie;
    EXPECT_EQ(e2m1_from_float_in_software(std::nextafter(e2m1_tie, 8.0F)), below + 1) << e2m1_tie;
    EXPECT_EQ(e2m1_from_float_in_software(-e2m1_tie), 8 + below + below % 2) << e2m1_tie;
  }
  for (const float large : {6.0F, 7.0F, 7.5F, 0x1p24F, 0x1p127F, INFINITY}) {
    EXPECT_EQ(e2m1_from_float_in_software(large), 0x7) << large;
    EXPECT_EQ(e2m1_from_float_in_software(-large), 0xf) << large;
  }
}

TEST(Minifloat, ScalesThatArePowersOfTwoFitEveryLargestElement) {
  for (u32 bits = 0; bits < 0x7f80; ++bits) {
    const float amax = float_from_bf16(static_cast<u16>(bits));
    const int log2 = amax == 0.0F ? -200 : std::ilogb(amax);
    const BlockScale mxfp4 = scale_of_block<QuantFormat::mxfp4>(amax, false, 1.0F);
    const BlockScale mxfp8 = scale_of_block<QuantFormat::mxfp8>(amax, false, 1.0F);
    const BlockScale fp8 = scale_of_block<QuantFormat::fp8_pow2>(amax, false, 1.0F);
    const int e4 = std::max(log2 - 2, -127);
    const int e8 = std::max(log2 - 8, -127);
    ASSERT_EQ(static_cast<int>(mxfp4.bits), e4 + 127) << amax;
    ASSERT_EQ(mxfp4.factor, std::ldexp(1.0F, -e4)) << amax;
    ASSERT_EQ(static_cast<int>(mxfp8.bits), e8 + 127) << amax;
    ASSERT_EQ(mxfp8.factor, std::ldexp(1.0F, -e8)) << amax;
    const float a = std::max(amax, 0x1p-110F);
    ASSERT_GE(448.0 * float_from_bits(fp8.bits), a);
    ASSERT_LT(224.0 * float_from_bits(fp8.bits), a) << "not the least";
    ASSERT_EQ(fp8.factor * float_from_bits(fp8.bits), 1.0F) << amax;
  }
}

}  // namespace
}  // namespace moelink::test

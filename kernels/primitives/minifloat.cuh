// e4m3, e2m1 and e8m0 (OCP 8-bit floating point, OCP microscaling): conversions with the same bits on every device.
// To a narrow type: round to nearest, ties to even; subnormals are kept; what is too large, infinity included, becomes
// the largest finite value with its sign; NaN becomes NaN (e4m3: 0x7f), or, as e2m1 has none, 0x7 (6).
#pragma once

#include "moelink/device/primitives/convert.cuh"
#include "moelink/protocol/types.hpp"

// Where a single instruction converts to e2m1: Blackwell's data center chips. The target must be the chip's own
// (sm_100a), since the instruction is not in its family's common set.
#if MOELINK_ON_DEVICE && defined(__CUDA_ARCH_FEAT_SM100_ALL)
#define MOELINK_HAS_CVT_E2M1 1
#else
#define MOELINK_HAS_CVT_E2M1 0
#endif

namespace moelink {

inline constexpr float kLargestE4m3 = 448.0F;
inline constexpr float kLargestE2m1 = 6.0F;
inline constexpr u8 kNanE4m3 = 0x7f;
inline constexpr u8 kNanE8m0 = 0xff;

MOELINK_DEVICE bool is_nan(float value) { return (float_bits(value) & 0x7fffffff) > 0x7f800000; }

/// Any device's arithmetic: selections, no branches.
MOELINK_DEVICE u8 e4m3_from_float_in_software(float value) {
  const u32 bits = float_bits(value);
  const u32 magnitude = bits & 0x7fffffff;
  const u32 normal = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - ((127 - 7) << 3);
  // Next to 2^14 the unit in the last place is 2^-9, as that of the subnormals: the sum rounds as wanted.
  constexpr float kSameUnit = 0x1p14F;
  const u32 subnormal = float_bits(add_rn(float_from_bits(magnitude), kSameUnit)) - float_bits(kSameUnit);
  constexpr u32 kSmallestNormal = 0x3c800000;  // 2^-6
  constexpr u32 kLargest = 0x43e00000;         // 448
  const u32 finite = magnitude >= kLargest ? 0x7e : magnitude < kSmallestNormal ? subnormal : normal;
  return static_cast<u8>(magnitude > 0x7f800000 ? kNanE4m3 : finite | (bits >> 24 & 0x80));
}

/// A magnitude's code in the lowest bits of kE2m1Units + code: its distance from zero in units of the binade that it is
/// in. Rounding as for each of the three binades (0 to 2, 2 to 4, from 4), the wanted result is the least. Next to
/// kE2m1Units fp32 has a unit in the last place of 1, so that the sums round as wanted. Products are exact: a sum may
/// be fused. What is above 7 is to be made 7.
inline constexpr float kE2m1Units = 0x1.8p23F;
MOELINK_DEVICE u32 e2m1_units(float magnitude) {
  const u32 below_two = float_bits(multiply_add_exact(magnitude, 2.0F, kE2m1Units));
  const u32 below_four = float_bits(add_rn(magnitude, kE2m1Units + 2.0F));
  const u32 from_four = float_bits(multiply_add_exact(magnitude, 0.5F, kE2m1Units + 4.0F));
  return min_of(min_of(below_two, below_four), from_four);
}

MOELINK_DEVICE u8 e2m1_from_float_in_software(float value) {
  if (is_nan(value)) return 0x7;
  const u32 bits = float_bits(value);
  const u32 code = e2m1_units(float_from_bits(bits & 0x7fffffff)) - float_bits(kE2m1Units);
  return static_cast<u8>(min_of(code, 7U) + (bits >> 28 & 0x8));
}

#if MOELINK_ON_DEVICE
/// Two bf16 magnitudes, times two that are powers of two: their codes in the lowest bits of each half, which are
/// kE2m1UnitsBf16 + code. As e2m1_units(), in packed arithmetic of bf16, which is exact up to the one rounding that is
/// wanted.
inline constexpr u32 kE2m1UnitsBf16 = 0x4340;  // 192: a unit in the last place of 1
MOELINK_DEVICE u32 e2m1_units_of_bf16_pair(u32 magnitudes, u32 factors) {
  u32 scaled;
  u32 below_two;
  u32 below_four;
  u32 from_four;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(scaled) : "r"(magnitudes), "r"(factors));
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(below_two) : "r"(scaled), "r"(0x40004000), "r"(0x43404340));   // 2, 192
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(below_four) : "r"(scaled), "r"(0x3f803f80), "r"(0x43424342));  // 1, 194
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(from_four) : "r"(scaled), "r"(0x3f003f00), "r"(0x43444344));   // 1/2, 196
  return __vminu2(__vminu2(__vminu2(below_two, below_four), from_four), 0x43474347);
}
#endif

/// Two values; `low` in the low byte.
MOELINK_DEVICE u16 e4m3_pair_from_floats(float low, float high) {
#if MOELINK_ON_DEVICE
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return static_cast<u16>(e4m3_from_float_in_software(low) | e4m3_from_float_in_software(high) << 8);
#endif
}
MOELINK_DEVICE u8 e4m3_from_float(float value) { return static_cast<u8>(e4m3_pair_from_floats(value, 0.0F)); }

/// Two values in one byte; `low` in the low half.
MOELINK_DEVICE u8 e2m1_pair_from_floats(float low, float high) {
#if MOELINK_HAS_CVT_E2M1
  u32 pair;
  asm("{ .reg .b8 byte; cvt.rn.satfinite.e2m1x2.f32 byte, %1, %2; cvt.u32.u8 %0, byte; }"
      : "=r"(pair)
      : "f"(high), "f"(low));
  return static_cast<u8>(pair);
#else
  return static_cast<u8>(e2m1_from_float_in_software(low) | e2m1_from_float_in_software(high) << 4);
#endif
}

/// Exact.
MOELINK_DEVICE float float_from_e4m3(u8 code) {
  const u32 magnitude = code & 0x7f;
  const u32 sign = static_cast<u32>(code & 0x80) << 24;
  if (magnitude == kNanE4m3) return float_from_bits(0x7fffffff);
  // Exponent and mantissa at fp32's places; the product makes up for the biases and normalises subnormals.
  return float_from_bits(float_bits(mul_rn(float_from_bits(magnitude << 20), 0x1p120F)) | sign);
}
MOELINK_DEVICE float float_from_e2m1(u8 code) {
  const u32 magnitude = code & 0x7;
  const u32 sign = static_cast<u32>(code & 0x8) << 28;
  return float_from_bits(float_bits(mul_rn(float_from_bits(magnitude << 22), 0x1p126F)) | sign);
}
MOELINK_DEVICE float float_from_e8m0(u8 code) {
  if (code == kNanE8m0) return float_from_bits(0x7fffffff);
  return code == 0 ? 0x1p-127F : float_from_bits(static_cast<u32>(code) << 23);
}

}  // namespace moelink

// bf16, fp16 and fp32: conversions and sums with the same bits on a GPU and on the host. Conversions to 16 bits round
// to nearest, ties to even; subnormals are kept; too large becomes infinity; every NaN becomes 0x7fff. Conversions to
// fp32 are exact; which NaN a NaN becomes is not specified.
#pragma once

#include "moelink/protocol/element.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

MOELINK_DEVICE constexpr u32 float_bits(float value) { return __builtin_bit_cast(u32, value); }
MOELINK_DEVICE constexpr float float_from_bits(u32 bits) { return __builtin_bit_cast(float, bits); }

/// a * b, rounded: never part of a fused multiply-add.
MOELINK_DEVICE float mul_rn(float a, float b) {
#if MOELINK_ON_DEVICE
  return __fmul_rn(a, b);
#else
  return a * b;  // the host is compiled with -ffp-contract=off
#endif
}

/// a + b, rounded: never part of a fused multiply-add.
MOELINK_DEVICE float add_rn(float a, float b) {
#if MOELINK_ON_DEVICE
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

/// a * b + c, where a * b is exact: rounded once, however it is computed.
MOELINK_DEVICE float multiply_add_exact(float a, float b, float c) {
#if MOELINK_ON_DEVICE
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

MOELINK_DEVICE float float_from_bf16(u16 bits) { return float_from_bits(static_cast<u32>(bits) << 16); }

MOELINK_DEVICE u16 bf16_from_float(float value) {
#if MOELINK_ON_DEVICE
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const u32 bits = float_bits(value);
  // Half a unit in the last place, less one if the kept part is even: carries exactly when the value rounds up, into
  // the exponent and up to infinity if need be.
  const u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<u16>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
#endif
}

// The host bodies of fp16 have selections instead of branches, so that loops over them are vectorised.

MOELINK_DEVICE float float_from_fp16(u16 bits) {
#if MOELINK_ON_DEVICE
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const u32 magnitude = bits & 0x7fff;
  // Exponent and mantissa at fp32's places: too small by the difference of the biases, 127 - 15. The product is exact,
  // and normalises fp16's subnormals.
  const u32 scaled = float_bits(float_from_bits(magnitude << 13) * 0x1p112F);
  const u32 special = magnitude == 0x7c00 ? 0x7f800000 : 0x7fffffff;
  const u32 sign = static_cast<u32>(bits & 0x8000) << 16;
  return float_from_bits((magnitude < 0x7c00 ? scaled : special) | sign);
#endif
}

MOELINK_DEVICE u16 fp16_from_float(float value) {
#if MOELINK_ON_DEVICE
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  constexpr u32 kInfinity = 0x7f800000;
  constexpr u32 kTooLarge = 0x47800000;        // 65536: from there on infinity; 65520 to there rounds to it
  constexpr u32 kSmallestNormal = 0x38800000;  // 2^-14
  const u32 bits = float_bits(value);
  const u32 magnitude = bits & 0x7fffffff;
  // Normal: fewer mantissa bits, rounded as for bf16, and the other bias.
  const u32 normal = (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // Subnormal: next to 0.5 the unit in the last place is 2^-24, as that of fp16's subnormals, so that the addition
  // rounds as wanted and the last bits are the result.
  const u32 subnormal = float_bits(float_from_bits(magnitude) + 0.5F) - float_bits(0.5F);
  const u32 special = magnitude > kInfinity ? 0x7fff : 0x7c00;
  const u32 finite = magnitude < kSmallestNormal ? subnormal : normal;
  const u32 sign = magnitude > kInfinity ? 0 : bits >> 16 & 0x8000;
  return static_cast<u16>((magnitude < kTooLarge ? finite : special) | sign);
#endif
}

/// The value of an element of a 16-bit type E.
template <Element E>
MOELINK_DEVICE float to_float(u16 bits) {
  static_assert(E == Element::bfloat16 || E == Element::float16);
  return E == Element::bfloat16 ? float_from_bf16(bits) : float_from_fp16(bits);
}

/// The element of a 16-bit type E nearest to `value`.
template <Element E>
MOELINK_DEVICE u16 from_float(float value) {
  static_assert(E == Element::bfloat16 || E == Element::float16);
  return E == Element::bfloat16 ? bf16_from_float(value) : fp16_from_float(value);
}

}  // namespace moelink

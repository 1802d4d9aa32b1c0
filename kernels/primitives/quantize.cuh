// Choosing a block's scale, and rounding its elements. The formulas, each operation rounded to fp32 (amax: the largest
// finite magnitude of the block; g: the caller's scale for the tensor):
//
//   fp8        a = max(amax, 2^-110)   scale = a / 448                      element = e4m3(x * (448 / a))
//   fp8_pow2   a = max(amax, 2^-110)   scale = 2^e, least with a <= 448*2^e  element = e4m3(x * 2^-e)
//   mxfp8      e = floor(log2(amax)) - 8, in [-127, 127]; scale = e8m0 e     element = e4m3(x * 2^-e)
//   mxfp4      e = floor(log2(amax)) - 2, in [-127, 127]; scale = e8m0 e     element = e2m1(x * 2^-e)
//   nvfp4      scale = s = e4m3(amax / (6 * g))        element = e2m1(x * (1 / (s * g))); all zero if s is 0
//
// A block of zeros has amax 0 (mx: e = -127) and zero elements, with their signs. Infinity becomes the largest element.
// NaN is an e4m3 NaN in fp8; in the other formats it also makes the block's scale NaN (e8m0 0xff, e4m3 0x7f), since
// e2m1 has none.
#pragma once

#include "moelink/device/primitives/minifloat.cuh"
#include "moelink/device/primitives/packed.cuh"
#include "moelink/protocol/element.hpp"
#include "moelink/protocol/quant.hpp"

namespace moelink {

/// A block's scale as stored, and what its elements are multiplied by.
struct BlockScale {
  u32 bits;  ///< fp32, or e8m0 or e4m3 in the low byte
  float factor;
};

MOELINK_DEVICE float divide_rn(float a, float b) {
#if MOELINK_ON_DEVICE
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// The scale's exponent and the inverse factor's, by bits: `biased` is the exponent plus 127, 0 .. 252.
MOELINK_DEVICE float inverse_power_of_two(u32 biased) { return float_from_bits((254 - biased) << 23); }

/// `amax` >= 0, finite.
template <QuantFormat F>
MOELINK_DEVICE BlockScale scale_of_block(float amax, bool has_nan, float tensor_scale) {
  if constexpr (F == QuantFormat::fp8) {
    const float a = max_of(amax, 0x1p-110F);
    return {float_bits(divide_rn(a, kLargestE4m3)), divide_rn(kLargestE4m3, a)};
  } else if constexpr (F == QuantFormat::fp8_pow2) {
    // 448 is 1.75 * 2^8.
    const u32 a = float_bits(max_of(amax, 0x1p-110F));
    const u32 biased = (a >> 23) - 8 + ((a & 0x7fffff) > 0x600000 ? 1 : 0);
    return {biased << 23, inverse_power_of_two(biased)};
  } else if constexpr (F == QuantFormat::mxfp8 || F == QuantFormat::mxfp4) {
    // What is no normal number has the least exponent, as has all below 2^-119 and 2^-125.
    constexpr i32 kLargestExponent = F == QuantFormat::mxfp8 ? 8 : 2;
    const u32 biased = static_cast<u32>(max_of(static_cast<i32>(float_bits(amax) >> 23) - kLargestExponent, 0));
    return {has_nan ? kNanE8m0 : biased, inverse_power_of_two(biased)};
  } else {
    static_assert(F == QuantFormat::nvfp4);
    const u8 code = e4m3_from_float(divide_rn(amax, mul_rn(kLargestE2m1, tensor_scale)));
    const float scale = mul_rn(float_from_e4m3(code), tensor_scale);
    return {has_nan ? kNanE4m3 : u32{code}, scale > 0.0F ? divide_rn(1.0F, scale) : 0.0F};
  }
}

/// Eight elements as quantised: fp8 fills both words, fp4 the first.
struct EightElements {
  u32 low;
  u32 high;
};

/// `values` times `factor`.
template <QuantFormat F>
MOELINK_DEVICE EightElements round_eight(const float* values, float factor) {
  float scaled[8];
  MOELINK_UNROLL
  for (int i = 0; i < 8; ++i) scaled[i] = mul_rn(values[i], factor);
  if constexpr (is_fp4(F)) {
    u32 word = 0;
    MOELINK_UNROLL
    for (int i = 0; i < 4; ++i) {
      word |= static_cast<u32>(e2m1_pair_from_floats(scaled[2 * i], scaled[2 * i + 1])) << (8 * i);
    }
    return {word, 0};
  } else {
    const auto four = [&](int first) {
      return static_cast<u32>(e4m3_pair_from_floats(scaled[first], scaled[first + 1])) |
             static_cast<u32>(e4m3_pair_from_floats(scaled[first + 2], scaled[first + 3])) << 16;
    };
    return {four(0), four(4)};
  }
}

/// Largest magnitude of a block so far.
struct BlockRange {
  u32 amax_bits = 0;  ///< of the finite elements, as fp32 bits, which are in the order of the values
  bool has_nan = false;

  MOELINK_DEVICE void add(float value) {
    const u32 magnitude = float_bits(value) & 0x7fffffff;
    has_nan = has_nan || magnitude > 0x7f800000;
    amax_bits = magnitude < 0x7f800000 ? max_of(amax_bits, magnitude) : amax_bits;
  }
};

}  // namespace moelink

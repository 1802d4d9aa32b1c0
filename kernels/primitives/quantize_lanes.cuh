// One block of a row, quantised by the lanes that hold it (device), or by one thread (host).
#pragma once

#include "moelink/device/primitives/quantize.cuh"
#include "moelink/device/ptx/vector.cuh"

namespace moelink {

/// A QuantFormat as a type, for templates.
template <QuantFormat F>
struct QuantFormatConstant {
  MOELINK_DEVICE constexpr QuantFormat operator()() const { return F; }
};

/// Calls body(QuantFormatConstant<format>{}). Where `format` is a constant only one call is left after inlining.
template <class Body>
MOELINK_DEVICE void with_quant_format(QuantFormat format, Body&& body) {
  switch (format) {
    case QuantFormat::none:
      return;
    case QuantFormat::fp8:
      return body(QuantFormatConstant<QuantFormat::fp8>{});
    case QuantFormat::fp8_pow2:
      return body(QuantFormatConstant<QuantFormat::fp8_pow2>{});
    case QuantFormat::mxfp8:
      return body(QuantFormatConstant<QuantFormat::mxfp8>{});
    case QuantFormat::mxfp4:
      return body(QuantFormatConstant<QuantFormat::mxfp4>{});
    case QuantFormat::nvfp4:
      return body(QuantFormatConstant<QuantFormat::nvfp4>{});
  }
}

/// Calls body(format, element) for those of a dispatch's spec, if it quantises.
template <class S, class Body>
MOELINK_DEVICE void with_quant_formats(S spec, Body&& body) {
  with_quant_format(spec().quantize, [&](auto format) {
    with_element(spec().input, [&](auto element) {
      if constexpr (element() != Element::float32) body(format, element);
    });
  });
}

/// `index`: in scales.
template <QuantFormat F>
MOELINK_DEVICE void store_scale(void* scales, i64 index, u32 bits) {
  if constexpr (bytes_per_scale(F) == 4) {
    static_cast<u32*>(scales)[index] = bits;
  } else {
    static_cast<u8*>(scales)[index] = static_cast<u8>(bits);
  }
}

#if MOELINK_ON_DEVICE

/// Elements that a lane holds: those of its widest access.
inline constexpr int kLaneElements = 8 * kWideVectors;
/// Lanes that hold one block: a power of two, aligned.
template <QuantFormat F>
inline constexpr int kLanesPerBlock = block_elements(F) / kLaneElements;

struct LaneBlock {
  EightElements elements[kWideVectors];  ///< this lane's
  u32 scale_bits;                        ///< of the lane's block: the same in all its lanes
};

/// The largest over the lanes of a block, in all of them.
template <QuantFormat F, class T, class Larger>
MOELINK_DEVICE T largest_of_block(T value, Larger&& larger) {
  MOELINK_UNROLL
  for (int step = kLanesPerBlock<F> / 2; step > 0; step /= 2) {
    value = larger(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  return value;
}

/// Of two pairs of 16-bit elements the larger magnitudes, with signs that mean nothing; NaN before all others.
template <Element E>
MOELINK_DEVICE u32 larger_magnitudes(u32 a, u32 b) {
  u32 larger;
  if constexpr (E == Element::bfloat16) {
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  } else {
    asm("max.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  }
  return larger;
}

/// The larger magnitude of a pair; NaN if there is one.
template <Element E>
MOELINK_DEVICE float largest_of_pair(u32 pair) {
  const float low = to_float<E>(static_cast<u16>(pair));
  const float high = to_float<E>(static_cast<u16>(pair >> 16));
  float largest;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(fabsf(low)), "f"(fabsf(high)));
  return largest;
}

/// 1 / value in one instruction, within a unit or two in the last place. 2^-126 <= value < 2^126.
MOELINK_DEVICE float about_inverse(float value) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(value));
  return inverse;
}
/// 1 / value, rounded: as the compiler's division has it, but for its checks of the range.
MOELINK_DEVICE float inverse_rn(float value) {
  const float first = about_inverse(value);
  const float inverse = __fmaf_rn(__fmaf_rn(-value, first, 1.0F), first, first);
  return __fmaf_rn(__fmaf_rn(-value, inverse, 1.0F), inverse, inverse);
}

/// The caller's scale for the tensor, and what follows from it for every block. Others than nvfp4 have none.
template <QuantFormat F>
struct TensorScale {
  float value;
  float divisor = 1.0F;  ///< of a block's largest
  float inverse = 1.0F;  ///< of `divisor`, rounded
  /// Bits of what a block's largest has to be below, lest a quotient over- or underflows on the way.
  u32 amax_end = 0x7f800000;

  MOELINK_DEVICE explicit TensorScale(float scale) : value(scale) {
    if constexpr (F == QuantFormat::nvfp4) {
      divisor = __fmul_rn(kLargestE2m1, scale);
      inverse = inverse_rn(divisor);
      amax_end = divisor >= 0x1p-60F && divisor <= 0x1p50F ? float_bits(0x1p60F) : 0;
    }
  }
};

/// scale_of_block() in fewer instructions and without branches, the same bits. `amax` is that of a 16-bit type, with 11
/// significant bits at most, and below tensor.amax_end.
template <QuantFormat F>
MOELINK_DEVICE BlockScale quick_scale_of_block(float amax, const TensorScale<F>& tensor) {
  if constexpr (F == QuantFormat::fp8) {
    const float a = max_of(amax, 0x1p-110F);
    // 1/448 in two parts. A quotient of so few bits is at least 2^-36 of itself away from where rounding turns.
    const float scale = __fmaf_rn(a, 0x1.24924ap-9F, __fmul_rn(a, -0x1.b6db6ep-34F));
    // 448 / a: for the mantissa, with one step of correction; then the exponent.
    const float mantissa = float_from_bits((float_bits(a) & 0x7fffff) | 0x3f800000);
    const float inverse = about_inverse(mantissa);
    const float quotient = __fmul_rn(kLargestE4m3, inverse);
    const float corrected = __fmaf_rn(__fmaf_rn(-quotient, mantissa, kLargestE4m3), inverse, quotient);
    return {float_bits(scale), float_from_bits(float_bits(corrected) + 0x3f800000 - (float_bits(a) & 0x7f800000))};
  } else if constexpr (F == QuantFormat::nvfp4) {
    // A quotient as the compiler's division has it, but for its checks of the range.
    const float about = __fmul_rn(amax, tensor.inverse);
    const float quotient = __fmaf_rn(__fmaf_rn(-about, tensor.divisor, amax), tensor.inverse, about);
    const u32 code = e4m3_pair_from_floats(quotient, 0.0F);
    const float scale = __fmul_rn(__fmul_rn(float_from_bits(code << 20), 0x1p120F), tensor.value);
    return {code, scale > 0.0F ? inverse_rn(scale) : 0.0F};
  } else {
    return scale_of_block<F>(amax, false, 1.0F);
  }
}

/// quantize_lanes() where something is not finite, or the tensor's scale not usual: rare.
template <QuantFormat F, Element E>
MOELINK_DEVICE LaneBlock quantize_any_lanes(const Vec16* held, float tensor_scale) {
  BlockRange range;
  float values[kLaneElements];
  MOELINK_UNROLL
  for (int i = 0; i < kWideVectors; ++i) unpack<E>(held[i], values + 8 * i);
  MOELINK_UNROLL
  for (int i = 0; i < kLaneElements; ++i) range.add(values[i]);
  const u32 lane = threadIdx.x % 32;
  const u32 with_nan = __ballot_sync(0xffffffffu, range.has_nan);
  const u32 lanes_of_block = ((1U << kLanesPerBlock<F>)-1) << lane / kLanesPerBlock<F> * kLanesPerBlock<F>;
  const auto larger = [](u32 a, u32 b) { return max_of(a, b); };
  const float amax = float_from_bits(largest_of_block<F>(range.amax_bits, larger));
  const BlockScale scale = scale_of_block<F>(amax, (with_nan & lanes_of_block) != 0, tensor_scale);
  LaneBlock block;
  MOELINK_UNROLL
  for (int i = 0; i < kWideVectors; ++i) block.elements[i] = round_eight<F>(values + 8 * i, scale.factor);
  block.scale_bits = scale.bits;
  return block;
}

/// The signs of eight 16-bit elements, each at the top of its four bits; the other bits are zero.
MOELINK_DEVICE u32 signs_of_eight(const Vec16& v) {
  const u32 low = __byte_perm(v.x, v.y, 0x7351);  // elements 0, 2, 1, 3
  const u32 high = __byte_perm(v.z, v.w, 0x7351);
  const u32 even = __byte_perm(low, high, 0x5410);
  const u32 odd = __byte_perm(low, high, 0x7632);
  return (even >> 4 & 0x08080808U) | (odd & 0x80808080U);
}

/// Eight elements as e2m1, in software. None is NaN; nvfp4: none is 7 or more when multiplied by `factor`.
template <QuantFormat F, Element E>
MOELINK_DEVICE EightElements round_eight_e2m1(const Vec16& held, float factor) {
  if constexpr (F == QuantFormat::mxfp4 && E == Element::bfloat16) {
    // Factors are powers of two: two elements at once, as they are.
    const u32 factors = __byte_perm(float_bits(factor), 0, 0x3232);
    const auto units = [&](u32 pair) { return e2m1_units_of_bf16_pair(pair & 0x7fff7fffU, factors); };
    const u32 low = __byte_perm(units(held.x), units(held.y), 0x6240);  // elements 0, 2, 1, 3
    const u32 high = __byte_perm(units(held.z), units(held.w), 0x6240);
    const u32 even = __byte_perm(low, high, 0x5410);
    const u32 odd = __byte_perm(low, high, 0x7632);
    return {(even & 0x07070707U) | (odd << 4 & 0x70707070U) | signs_of_eight(held), 0};
  } else {
    float values[8];
    unpack<E>(held, values);
    u32 word = 0;
    u32 units_of_zeros = 0;
    MOELINK_UNROLL
    for (int i = 7; i >= 0; --i) {
      const u32 units = e2m1_units(__fmul_rn(fabsf(values[i]), factor));
      word = word * 16 + (F == QuantFormat::nvfp4 ? units : min_of(units, float_bits(kE2m1Units) + 7));
      units_of_zeros = units_of_zeros * 16 + float_bits(kE2m1Units);
    }
    return {word - units_of_zeros + signs_of_eight(held), 0};
  }
}

/// By all lanes of a warp: each holds kLaneElements elements of type E; what lies past the end of a row is zeros.
template <QuantFormat F, Element E, class Exec>
MOELINK_DEVICE LaneBlock quantize_lanes(const Exec&, const Vec16* held, const TensorScale<F>& tensor) {
  constexpr bool kInSoftware = is_fp4(F) && MOELINK_HAS_CVT_E2M1 == 0;
  u32 pair = 0;
  MOELINK_UNROLL
  for (int i = 0; i < kWideVectors; ++i) {
    const Vec16& v = held[i];
    const u32 of_four = larger_magnitudes<E>(larger_magnitudes<E>(v.x, v.y), larger_magnitudes<E>(v.z, v.w));
    pair = i == 0 ? of_four : larger_magnitudes<E>(pair, of_four);
  }
  const float amax = largest_of_pair<E>(largest_of_block<F>(pair, larger_magnitudes<E>));
  const BlockScale scale = quick_scale_of_block<F>(amax, tensor);
  bool is_usual = float_bits(amax) < tensor.amax_end;
  // An nvfp4 scale that had to be rounded far down, or to the largest, leaves elements above 7.
  if constexpr (F == QuantFormat::nvfp4 && kInSoftware) is_usual = is_usual && __fmul_rn(amax, scale.factor) < 7.0F;
  if (__all_sync(0xffffffffu, is_usual)) [[likely]] {
    LaneBlock block;
    MOELINK_UNROLL
    for (int i = 0; i < kWideVectors; ++i) {
      if constexpr (kInSoftware) {
        block.elements[i] = round_eight_e2m1<F, E>(held[i], scale.factor);
      } else {
        float values[8];
        unpack<E>(held[i], values);
        block.elements[i] = round_eight<F>(values, scale.factor);
      }
    }
    block.scale_bits = scale.bits;
    return block;
  }
  return quantize_any_lanes<F, E>(held, tensor.value);
}

/// By one lane: stores what it holds, but for what lies past `left` elements (a multiple of eight, above 0). `to` is
/// aligned to the bytes of eight elements.
template <QuantFormat F>
MOELINK_DEVICE void store_lane(u8* to, const EightElements* elements, i32 left) {
  constexpr int kBytes = static_cast<int>(quant_bytes(F, 8));
  if constexpr (kWideVectors == 2) {
    if (left >= kLaneElements && reinterpret_cast<u64>(to) % (2 * kBytes) == 0) {
      if constexpr (kBytes == 8) {
        *reinterpret_cast<uint4*>(to) = uint4{elements[0].low, elements[0].high, elements[1].low, elements[1].high};
      } else {
        *reinterpret_cast<uint2*>(to) = uint2{elements[0].low, elements[1].low};
      }
      return;
    }
  }
  MOELINK_UNROLL
  for (int i = 0; i < kWideVectors; ++i) {
    if (left <= 8 * i) continue;
    if constexpr (kBytes == 8) {
      *reinterpret_cast<uint2*>(to + i * kBytes) = uint2{elements[i].low, elements[i].high};
    } else {
      *reinterpret_cast<u32*>(to + i * kBytes) = elements[i].low;
    }
  }
}

/// By one lane: stores its unit of a row, and the scale if it is the first lane of its block. `left`: elements from the
/// unit's first on; nothing is stored if there are none.
template <QuantFormat F>
MOELINK_DEVICE void store_unit(u8* row, u8* scales, i32 unit, const LaneBlock& block, i32 left) {
  if (left <= 0) return;
  store_lane<F>(row + static_cast<i32>(quant_bytes(F, kLaneElements)) * unit, block.elements, left);
  if (unit % kLanesPerBlock<F> == 0) store_scale<F>(scales, unit / kLanesPerBlock<F>, block.scale_bits);
}

#else

/// Quantises `count` elements (a multiple of 8, at most a block) into `to`; returns the scale's bits.
template <QuantFormat F, Element E>
u32 host_quantize_block(const u16* from, i64 count, float tensor_scale, u8* to) {
  BlockRange range;
  float values[block_elements(F)];
  for (i64 i = 0; i < count; ++i) {
    values[i] = to_float<E>(from[i]);
    range.add(values[i]);
  }
  const BlockScale scale = scale_of_block<F>(float_from_bits(range.amax_bits), range.has_nan, tensor_scale);
  for (i64 i = 0; i < count; i += 8) {
    const EightElements eight = round_eight<F>(values + i, scale.factor);
    const u32 words[2] = {eight.low, eight.high};
    __builtin_memcpy(to + quant_bytes(F, i), words, static_cast<u64>(quant_bytes(F, 8)));
  }
  return scale.bits;
}

#endif

}  // namespace moelink

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
template <QuantFormat F>
MOELINK_DEVICE u32 largest_of_block(u32 value) {
  MOELINK_UNROLL
  for (int step = kLanesPerBlock<F> / 2; step > 0; step /= 2) {
    value = max_of(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  return value;
}

/// quantize_lanes() where something is not finite: rare.
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
  const float amax = float_from_bits(largest_of_block<F>(range.amax_bits));
  const BlockScale scale = scale_of_block<F>(amax, (with_nan & lanes_of_block) != 0, tensor_scale);
  LaneBlock block;
  MOELINK_UNROLL
  for (int i = 0; i < kWideVectors; ++i) block.elements[i] = round_eight<F>(values + 8 * i, scale.factor);
  block.scale_bits = scale.bits;
  return block;
}

/// Whether elements can be rounded two at once, as they are: scales are powers of two, and the chip has no conversion.
template <QuantFormat F, Element E>
inline constexpr bool kRoundsPairs = F == QuantFormat::mxfp4&& E == Element::bfloat16&& MOELINK_HAS_CVT_E2M1 == 0;

/// Eight bf16 that are no NaNs, times a power of two, as e2m1.
MOELINK_DEVICE EightElements round_eight_pairs(const Vec16& held, float factor) {
  const u32 factors = __byte_perm(float_bits(factor), 0, 0x3232);
  // A pair's codes side by side in the low byte.
  const auto joined = [&](u32 pair) {
    const u32 codes = e2m1_from_bf16_pair(pair, factors);
    return codes | codes >> 12;
  };
  const u32 low = __byte_perm(joined(held.x), joined(held.y), 0x0040);
  const u32 high = __byte_perm(joined(held.z), joined(held.w), 0x0040);
  return {__byte_perm(low, high, 0x5410), 0};
}

/// By all lanes of a warp: each holds kLaneElements elements of type E; what lies past the end of a row is zeros.
template <QuantFormat F, Element E, class Exec>
MOELINK_DEVICE LaneBlock quantize_lanes(const Exec&, const Vec16* held, float tensor_scale) {
  constexpr u32 kInfinity = E == Element::bfloat16 ? 0x7f80 : 0x7c00;
  // Magnitudes of 16-bit elements as integers are in the order of their values; two at once.
  const auto magnitudes = [](u32 pair) { return pair & 0x7fff7fffU; };
  const auto largest = [&](const Vec16& v) {
    return __vmaxu2(__vmaxu2(magnitudes(v.x), magnitudes(v.y)), __vmaxu2(magnitudes(v.z), magnitudes(v.w)));
  };
  u32 pairs = largest(held[0]);
  MOELINK_UNROLL
  for (int i = 1; i < kWideVectors; ++i) pairs = __vmaxu2(pairs, largest(held[i]));
  u32 amax = max_of(pairs & 0xffffU, pairs >> 16);
  const bool all_finite = !__any_sync(0xffffffffu, amax >= kInfinity);
  if (all_finite) {
    const BlockScale scale =
        scale_of_block<F>(to_float<E>(static_cast<u16>(largest_of_block<F>(amax))), false, tensor_scale);
    LaneBlock block;
    MOELINK_UNROLL
    for (int i = 0; i < kWideVectors; ++i) {
      if constexpr (kRoundsPairs<F, E>) {
        block.elements[i] = round_eight_pairs(held[i], scale.factor);
      } else {
        float values[8];
        unpack<E>(held[i], values);
        block.elements[i] = round_eight<F, true>(values, scale.factor);
      }
    }
    block.scale_bits = scale.bits;
    return block;
  }
  return quantize_any_lanes<F, E>(held, tensor_scale);
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

// One block of a row, quantised by the lanes that hold it (device), or by one thread (host).
#pragma once

#include "moelink/device/primitives/quantize.cuh"

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

/// Lanes that hold one block, eight elements each: a power of two, aligned.
template <QuantFormat F>
inline constexpr int kLanesPerBlock = block_elements(F) / 8;

template <QuantFormat F>
struct LaneBlock {
  EightElements elements;  ///< this lane's
  u32 scale_bits;          ///< of the lane's block: the same in all its lanes
};

/// By all lanes of a warp: each holds eight elements of type E; a lane past the end of its row holds zeros.
template <QuantFormat F, Element E, class Exec>
MOELINK_DEVICE LaneBlock<F> quantize_lanes(const Exec&, const Vec16& held, float tensor_scale) {
  constexpr u32 kInfinity = E == Element::bfloat16 ? 0x7f80 : 0x7c00;
  // Magnitudes of 16-bit elements as integers are in the order of their values; two at once.
  const auto magnitudes = [](u32 pair) { return pair & 0x7fff7fffU; };
  const u32 pairs =
      __vmaxu2(__vmaxu2(magnitudes(held.x), magnitudes(held.y)), __vmaxu2(magnitudes(held.z), magnitudes(held.w)));
  u32 amax = max_of(pairs & 0xffffU, pairs >> 16);
  float values[8];
  unpack<E>(held, values);
  bool has_nan = false;
  if (__any_sync(0xffffffffu, amax >= kInfinity)) {  // rare: not finite somewhere in the warp
    BlockRange range;
    MOELINK_UNROLL
    for (int i = 0; i < 8; ++i) range.add(values[i]);
    const u32 lane = threadIdx.x % 32;
    const u32 with_nan = __ballot_sync(0xffffffffu, range.has_nan);
    const u32 lanes_of_block = (kLanesPerBlock<F> == 32 ? 0xffffffffu : (1U << kLanesPerBlock<F>)-1)
                               << lane / kLanesPerBlock<F> * kLanesPerBlock<F>;
    has_nan = (with_nan & lanes_of_block) != 0;
    amax = E == Element::bfloat16 ? range.amax_bits >> 16 : fp16_from_float(float_from_bits(range.amax_bits));
  }
  MOELINK_UNROLL
  for (int step = kLanesPerBlock<F> / 2; step > 0; step /= 2) {
    amax = max_of(amax, __shfl_xor_sync(0xffffffffu, amax, step));
  }
  const BlockScale scale = scale_of_block<F>(to_float<E>(static_cast<u16>(amax)), has_nan, tensor_scale);
  return {round_eight<F>(values, scale.factor), scale.bits};
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

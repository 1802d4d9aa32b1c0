// Elements packed in 16-byte units, as floats. Conversions to 16 bits round to nearest even; sums elsewhere are
// multiply, then add, both rounded, so that a GPU and the host give the same bits (NaNs: some NaN).
#pragma once

#include "moelink/protocol/element.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

#if MOELINK_ON_DEVICE

/// Elements of type E in 16 bytes.
template <Element E>
inline constexpr int kPerVec16 = E == Element::float32 ? 4 : 8;

/// Two packed 16-bit elements, the lower half first.
template <Element E>
MOELINK_DEVICE void unpack_pair(u32 pair, float& low, float& high) {
  if constexpr (E == Element::bfloat16) {
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
  } else {
    asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high)
        : "r"(pair));
  }
}

template <Element E>
MOELINK_DEVICE u32 pack_pair(float low, float high) {
  u32 pair;
  if constexpr (E == Element::bfloat16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

template <Element E>
MOELINK_DEVICE void unpack(const Vec16& v, float* out) {
  if constexpr (E == Element::float32) {
    out[0] = __uint_as_float(v.x);
    out[1] = __uint_as_float(v.y);
    out[2] = __uint_as_float(v.z);
    out[3] = __uint_as_float(v.w);
  } else {
    unpack_pair<E>(v.x, out[0], out[1]);
    unpack_pair<E>(v.y, out[2], out[3]);
    unpack_pair<E>(v.z, out[4], out[5]);
    unpack_pair<E>(v.w, out[6], out[7]);
  }
}

template <Element E>
MOELINK_DEVICE Vec16 pack(const float* in) {
  if constexpr (E == Element::float32) {
    return {__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]), __float_as_uint(in[3])};
  } else {
    return {pack_pair<E>(in[0], in[1]), pack_pair<E>(in[2], in[3]), pack_pair<E>(in[4], in[5]),
            pack_pair<E>(in[6], in[7])};
  }
}

/// Each element times `weight`, rounded to its type; Element::none: as it is.
template <Element E>
MOELINK_DEVICE Vec16 scaled(const Vec16& v, float weight) {
  if constexpr (E == Element::none) {
    return v;
  } else {
    float values[kPerVec16<E>];
    unpack<E>(v, values);
#pragma unroll
    for (int i = 0; i < kPerVec16<E>; ++i) values[i] = __fmul_rn(values[i], weight);
    return pack<E>(values);
  }
}

#endif

}  // namespace moelink

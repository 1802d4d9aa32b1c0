// fp16 to fp32 and back, whole arrays at once, by F16C where the processor has it. Host only. The bits are those of
// convert.cuh, whose host bodies take some ten instructions an element.
#pragma once

#include "moelink/device/primitives/convert.cuh"
#include "moelink/protocol/types.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace moelink {

#if defined(__x86_64__)

[[nodiscard]] inline bool host_has_f16c() {
  static const bool found = __builtin_cpu_supports("f16c") != 0 && __builtin_cpu_supports("avx2") != 0;
  return found;
}

/// to[0, count) = from. Only where host_has_f16c().
__attribute__((target("avx2,f16c"))) inline void host_widen_fp16(float* __restrict to, const u16* __restrict from,
                                                                 i64 count) {
  i64 i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  for (; i < count; ++i) to[i] = float_from_fp16(from[i]);
}

/// to[0, count) = from, rounded. Only where host_has_f16c().
__attribute__((target("avx2,f16c"))) inline void host_narrow_to_fp16(u16* __restrict to, const float* __restrict from,
                                                                     i64 count) {
  const __m128i nan = _mm_set1_epi16(0x7fff);
  i64 i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 values = _mm256_loadu_ps(from + i);
    const __m128i rounded = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // The instruction keeps what it can of a NaN; here every NaN is the same.
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m128i mask = _mm_packs_epi32(_mm256_castsi256_si128(is_nan), _mm256_extracti128_si256(is_nan, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_blendv_epi8(rounded, nan, mask));
  }
  for (; i < count; ++i) to[i] = fp16_from_float(from[i]);
}

#else

[[nodiscard]] inline bool host_has_f16c() { return false; }
inline void host_widen_fp16(float*, const u16*, i64) {}
inline void host_narrow_to_fp16(u16*, const float*, i64) {}

#endif

}  // namespace moelink

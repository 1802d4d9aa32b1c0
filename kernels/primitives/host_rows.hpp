// The host bodies of row copy and row reduce. Host only.
//
// Rows that a call writes may be far more than the caches hold; a plain store then reads each line before it overwrites
// it. `streaming` copies write past the caches instead, in whole lines. Such stores are ordered by nothing but the
// fence at the end of each function here, so that whoever is told "done" sees them.
//
// Sums are compiled once per instruction set; which one runs is looked up at the first call. All give the same bits:
// each element is multiplied, then added, each rounded (-ffp-contract=off), in the order of the rows.
#pragma once

#include <cstring>

#include "moelink/device/primitives/convert.cuh"
#include "moelink/device/primitives/host_fp16.hpp"
#include "moelink/protocol/element.hpp"
#include "moelink/protocol/types.hpp"

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define MOELINK_HOST_STREAMING 1  // ThreadSanitizer does not see streaming stores
#include <emmintrin.h>
#else
#define MOELINK_HOST_STREAMING 0
#endif
#if defined(__x86_64__)
#define MOELINK_HOST_TARGET(features) __attribute__((target(features)))
#endif

namespace moelink {

/// Orders streaming stores before whatever this thread writes next: at the end of every primitive that used them.
inline void host_stream_fence() {
#if MOELINK_HOST_STREAMING
  _mm_sfence();
#endif
}

/// Copies whole 16-byte units past the caches. `to` is a multiple of 16. Wants host_stream_fence() behind the last.
inline void host_stream_copy(u8* to, const u8* from, i64 bytes) {
#if MOELINK_HOST_STREAMING
  auto* out = reinterpret_cast<__m128i*>(to);
  const auto* in = reinterpret_cast<const __m128i*>(from);
  i64 at = 0;
  for (; at + 4 <= bytes / 16; at += 4) {
    const __m128i a = _mm_loadu_si128(in + at);
    const __m128i b = _mm_loadu_si128(in + at + 1);
    const __m128i c = _mm_loadu_si128(in + at + 2);
    const __m128i d = _mm_loadu_si128(in + at + 3);
    _mm_stream_si128(out + at, a);
    _mm_stream_si128(out + at + 1, b);
    _mm_stream_si128(out + at + 2, c);
    _mm_stream_si128(out + at + 3, d);
  }
  for (; at < bytes / 16; ++at) _mm_stream_si128(out + at, _mm_loadu_si128(in + at));
#else
  std::memcpy(to, from, static_cast<u64>(bytes));
#endif
}

/// Element `i` of an array of a type known at run time.
inline float host_load_element(const void* array, Element type, i64 i) {
  if (type == Element::float32) return static_cast<const float*>(array)[i];
  const u16 bits = static_cast<const u16*>(array)[i];
  return type == Element::bfloat16 ? float_from_bf16(bits) : float_from_fp16(bits);
}

inline constexpr i64 kHostTileElements = 512;  ///< sums of so many elements stay in the first cache

/// to[0, count) = value, rounded to E.
template <Element E>
[[gnu::always_inline]] inline void host_convert_tile(void* __restrict to, const float* __restrict from, i64 count) {
  if constexpr (E == Element::float16) {
    if (host_has_f16c()) return host_narrow_to_fp16(static_cast<u16*>(to), from, count);
  }
  for (i64 i = 0; i < count; ++i) {
    if constexpr (E == Element::float32) {
      static_cast<float*>(to)[i] = from[i];
    } else {
      static_cast<u16*>(to)[i] = from_float<E>(from[i]);
    }
  }
}

/// sum[0, count) = or += row * weight (not weighted: row). `count` is at most kHostTileElements.
template <Element E, bool kWeighted, bool kAdd>
[[gnu::always_inline]] inline void host_add_tile(float* __restrict sum, const void* __restrict row, float weight,
                                                 i64 count) {
  if constexpr (E == Element::float16) {
    if (host_has_f16c()) {
      alignas(64) float values[kHostTileElements];
      host_widen_fp16(values, static_cast<const u16*>(row), count);
      return host_add_tile<Element::float32, kWeighted, kAdd>(sum, values, weight, count);
    }
  }
  for (i64 i = 0; i < count; ++i) {
    float value;
    if constexpr (E == Element::float32) {
      value = static_cast<const float*>(row)[i];
    } else {
      value = to_float<E>(static_cast<const u16*>(row)[i]);
    }
    if constexpr (kWeighted) value = mul_rn(value, weight);
    sum[i] = kAdd ? add_rn(sum[i], value) : value;
  }
}

/// One row's sum, in full. `rows[k]` null: adds nothing.
struct HostReduction {
  const u8* const* rows;
  const float* weights;  ///< null: not weighted
  int num_rows;
  u8* output;
  i64 count;  ///< elements
  bool accumulate;
  bool streaming;
};

/// Asks for the tile that is kAhead tiles further on: rows lie anywhere, so that hardware sees each tile as something
/// new.
template <Element In>
[[gnu::always_inline]] inline void host_prefetch_ahead(const HostReduction& job, int k, i64 first) {
  constexpr int kAhead = 3;
  constexpr i64 kLineBytes = 64;
  const int wanted = k + kAhead;
  const i64 tile = first + (wanted / job.num_rows) * kHostTileElements;
  const u8* row = job.rows[wanted % job.num_rows];
  if (row == nullptr || tile >= job.count) return;
  const u8* from = row + tile * bytes_of(In);
  const i64 bytes = min_of(kHostTileElements, job.count - tile) * bytes_of(In);
  for (i64 at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(from + at);
}

template <Element In, Element Out>
[[gnu::always_inline]] inline void host_reduce_tiles(const HostReduction& job) {
  alignas(64) float sum[kHostTileElements];
  alignas(64) u8 rounded[kHostTileElements * bytes_of(Out)];
  for (i64 first = 0; first < job.count; first += kHostTileElements) {
    const i64 count = min_of(kHostTileElements, job.count - first);
    u8* out = job.output + first * bytes_of(Out);
    if (job.accumulate) {
      host_add_tile<Out, false, false>(sum, out, 1.0F, count);
    } else {
      std::memset(sum, 0, sizeof(sum));
    }
    for (int k = 0; k < job.num_rows; ++k) {
      host_prefetch_ahead<In>(job, k, first);
      if (job.rows[k] == nullptr) continue;
      const u8* row = job.rows[k] + first * bytes_of(In);
      if (job.weights != nullptr) {
        host_add_tile<In, true, true>(sum, row, job.weights[k], count);
      } else {
        host_add_tile<In, false, true>(sum, row, 1.0F, count);
      }
    }
    if (job.streaming) {
      host_convert_tile<Out>(rounded, sum, count);
      host_stream_copy(out, rounded, count * bytes_of(Out));
    } else {
      host_convert_tile<Out>(out, sum, count);
    }
  }
}

/// to[0, bytes) = from * weight, rounded to E.
template <Element E>
[[gnu::always_inline]] inline void host_scale_tiles(u8* to, const u8* from, i64 bytes, float weight, bool streaming) {
  alignas(64) float product[kHostTileElements];
  alignas(64) u8 rounded[kHostTileElements * bytes_of(E)];
  constexpr i64 kTileBytes = kHostTileElements * bytes_of(E);
  for (i64 first = 0; first < bytes; first += kTileBytes) {
    const i64 tile_bytes = min_of(kTileBytes, bytes - first);
    const i64 count = tile_bytes / bytes_of(E);
    host_add_tile<E, true, false>(product, from + first, weight, count);
    if (streaming) {
      host_convert_tile<E>(rounded, product, count);
      host_stream_copy(to + first, rounded, tile_bytes);
    } else {
      host_convert_tile<E>(to + first, product, count);
    }
  }
}

// NOTE [host instruction sets]. The always-inline bodies above take on the instruction set of the function they end up
// in.
template <Element In, Element Out>
inline void host_reduce_baseline(const HostReduction& job) {
  host_reduce_tiles<In, Out>(job);
}
template <Element E>
inline void host_scale_baseline(u8* to, const u8* from, i64 bytes, float weight, bool streaming) {
  host_scale_tiles<E>(to, from, bytes, weight, streaming);
}
#if defined(__x86_64__)
template <Element In, Element Out>
MOELINK_HOST_TARGET("avx2")
inline void host_reduce_avx2(const HostReduction& job) {
  host_reduce_tiles<In, Out>(job);
}
template <Element In, Element Out>
MOELINK_HOST_TARGET("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")
inline void host_reduce_avx512(const HostReduction& job) {
  host_reduce_tiles<In, Out>(job);
}
template <Element E>
MOELINK_HOST_TARGET("avx2")
inline void host_scale_avx2(u8* to, const u8* from, i64 bytes, float weight, bool streaming) {
  host_scale_tiles<E>(to, from, bytes, weight, streaming);
}
#endif

enum class HostInstructions : u8 { baseline, avx2, avx512 };

inline HostInstructions host_instructions() {
#if defined(__x86_64__)
  static const HostInstructions found = [] {
    if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
        __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0) {
      return HostInstructions::avx512;
    }
    return __builtin_cpu_supports("avx2") != 0 ? HostInstructions::avx2 : HostInstructions::baseline;
  }();
  return found;
#else
  return HostInstructions::baseline;
#endif
}

template <Element In, Element Out>
void host_reduce(const HostReduction& job) {
#if defined(__x86_64__)
  if (host_instructions() == HostInstructions::avx512) return host_reduce_avx512<In, Out>(job);
  if (host_instructions() == HostInstructions::avx2) return host_reduce_avx2<In, Out>(job);
#endif
  host_reduce_baseline<In, Out>(job);
}

template <Element In>
void host_reduce_to(Element output, const HostReduction& job) {
  switch (output) {
    case Element::bfloat16:
      return host_reduce<In, Element::bfloat16>(job);
    case Element::float16:
      return host_reduce<In, Element::float16>(job);
    case Element::float32:
      return host_reduce<In, Element::float32>(job);
    case Element::none:
      return;
  }
}

/// One row of combine, types known at run time.
inline void host_reduce_row(Element input, Element output, const HostReduction& job) {
  switch (input) {
    case Element::bfloat16:
      return host_reduce_to<Element::bfloat16>(output, job);
    case Element::float16:
      return host_reduce_to<Element::float16>(output, job);
    case Element::float32:
      return host_reduce_to<Element::float32>(output, job);
    case Element::none:
      return;
  }
}

template <Element E>
void host_scale(u8* to, const u8* from, i64 bytes, float weight, bool streaming) {
#if defined(__x86_64__)
  if (host_instructions() != HostInstructions::baseline) {
    return host_scale_avx2<E>(to, from, bytes, weight, streaming);
  }
#endif
  host_scale_baseline<E>(to, from, bytes, weight, streaming);
}

/// Copies a row (a multiple of 16 bytes), multiplied by `weight` if `weighted` names its type.
inline void host_copy_row(u8* to, const u8* from, i64 bytes, Element weighted, float weight, bool streaming) {
  switch (weighted) {
    case Element::bfloat16:
      return host_scale<Element::bfloat16>(to, from, bytes, weight, streaming);
    case Element::float16:
      return host_scale<Element::float16>(to, from, bytes, weight, streaming);
    case Element::float32:
      return host_scale<Element::float32>(to, from, bytes, weight, streaming);
    case Element::none:
      break;
  }
  if (streaming) {
    host_stream_copy(to, from, bytes);
  } else {
    std::memcpy(to, from, static_cast<u64>(bytes));
  }
}

/// Zeroes a row.
inline void host_clear_row(u8* to, i64 bytes) { std::memset(to, 0, static_cast<u64>(bytes)); }

}  // namespace moelink

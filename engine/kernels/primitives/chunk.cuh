// Rows as chunks of sixteen bytes: one access on a GPU, a few elements on the host.
#pragma once

#include "moelink/device/primitives/convert.cuh"
#include "moelink/device/primitives/packed.cuh"
#include "moelink/device/ptx/vector.cuh"
#include "moelink/protocol/element.hpp"

namespace moelink::engine {

/// Elements of one chunk.
constexpr int chunk_width(Element element) { return 16 / bytes_of(element); }

/// Chunk `index` of an aligned row, as floats.
template <Element E>
MOELINK_DEVICE void load_chunk(const void* row, i64 index, float* out) {
#if MOELINK_ON_DEVICE
  unpack<E>(ld_v4(static_cast<const Vec16*>(row) + index), out);
#else
  constexpr int kWidth = chunk_width(E);
  for (int i = 0; i < kWidth; ++i) {
    if constexpr (E == Element::float32) {
      out[i] = static_cast<const float*>(row)[index * kWidth + i];
    } else {
      out[i] = to_float<E>(static_cast<const u16*>(row)[index * kWidth + i]);
    }
  }
#endif
}

template <Element E>
MOELINK_DEVICE void store_chunk(void* row, i64 index, const float* in) {
#if MOELINK_ON_DEVICE
  st_v4(static_cast<Vec16*>(row) + index, pack<E>(in));
#else
  constexpr int kWidth = chunk_width(E);
  for (int i = 0; i < kWidth; ++i) {
    if constexpr (E == Element::float32) {
      static_cast<float*>(row)[index * kWidth + i] = in[i];
    } else {
      static_cast<u16*>(row)[index * kWidth + i] = from_float<E>(in[i]);
    }
  }
#endif
}

/// What store_chunk<E> loses of `in`, as a chunk of its own: both together are `in` with twice the bits.
template <Element E>
MOELINK_DEVICE void store_rest(void* row, i64 index, const float* in) {
  if constexpr (E != Element::float32) {
    float rest[chunk_width(E)];
    MOELINK_UNROLL
    for (int i = 0; i < chunk_width(E); ++i) rest[i] = in[i] - to_float<E>(from_float<E>(in[i]));
    store_chunk<E>(row, index, rest);
  }
}

/// Elements of a chunk of type E, from or to a row of floats: where sums are carried on and on, they stay in fp32.
template <Element E>
MOELINK_DEVICE void load_floats(const void* row, i64 index, float* out) {
  constexpr int kWidth = chunk_width(Element::float32);
  constexpr int kChunks = chunk_width(E) / kWidth;
  MOELINK_UNROLL
  for (int i = 0; i < kChunks; ++i) load_chunk<Element::float32>(row, index * kChunks + i, out + i * kWidth);
}
template <Element E>
MOELINK_DEVICE void store_floats(void* row, i64 index, const float* in) {
  constexpr int kWidth = chunk_width(Element::float32);
  constexpr int kChunks = chunk_width(E) / kWidth;
  MOELINK_UNROLL
  for (int i = 0; i < kChunks; ++i) store_chunk<Element::float32>(row, index * kChunks + i, in + i * kWidth);
}

/// Four bytes of aligned memory of any type.
MOELINK_DEVICE u32 load_word(const void* words, i64 index) {
#if MOELINK_ON_DEVICE
  return static_cast<const u32*>(words)[index];
#else
  u32 word = 0;
  __builtin_memcpy(&word, static_cast<const unsigned char*>(words) + index * 4, sizeof(word));
  return word;
#endif
}

/// One element of a row.
template <Element E>
MOELINK_DEVICE void store_element(void* row, i64 index, float value) {
  if constexpr (E == Element::float32) {
    static_cast<float*>(row)[index] = value;
  } else {
    static_cast<u16*>(row)[index] = from_float<E>(value);
  }
}

/// Row `row` of a dense matrix with `columns` elements of type E in each.
template <Element E>
MOELINK_DEVICE const void* row_at(const void* matrix, i64 row, i64 columns) {
  return static_cast<const unsigned char*>(matrix) + row * columns * bytes_of(E);
}
template <Element E>
MOELINK_DEVICE void* row_at(void* matrix, i64 row, i64 columns) {
  return static_cast<unsigned char*>(matrix) + row * columns * bytes_of(E);
}

}  // namespace moelink::engine

// One row as the weighted sum of up to 32 rows: fp32, rows in order, product and sum each rounded; one rounding at the
// end. By the block, or by several blocks that have a part of the row each.
#pragma once

#include "moelink/device/primitives/convert.cuh"
#include "moelink/device/primitives/line_rows.cuh"
#include "moelink/device/primitives/packed.cuh"
#include "moelink/device/ptx/vector.cuh"
#include "moelink/protocol/local_moe.hpp"
#if !MOELINK_ON_DEVICE
#include "moelink/device/primitives/host_rows.hpp"
#endif

namespace moelink {

/// One sum. Addresses are multiples of 16 bytes.
struct RowSum {
  const u8* rows;  ///< row r is at rows + r * row_stride_bytes
  i64 row_stride_bytes;
  u32 num_rows;           ///< an index outside [0, num_rows) adds nothing
  const i32* indices;     ///< [top_k]
  const float* weights;   ///< [top_k], or null: not weighted
  const u8* shared;       ///< one more row, not weighted, added last; or null
  u8* output;             ///< the whole row
  bool accumulate;        ///< start from what output holds
  const i32* num_tokens;  ///< output is written if token is less than this
  i32 token;
  bool streaming;
};

#if MOELINK_ON_DEVICE

/// Elements that a thread sums at once: 16 bytes of the narrower type.
template <class S>
inline constexpr int kElementsPerUnit = S{}().input == Element::float32&& S{}().output == Element::float32 ? 4 : 8;

/// kCount elements of type E in memory, as 16-byte vectors.
template <Element E, int kCount>
struct Elements {
  static constexpr int kVectors = max_of(1, kCount* bytes_of(E) / 16);
  static constexpr int kPerVector = kCount / kVectors;
  Vec16 vectors[kVectors];

  MOELINK_DEVICE void load_once(const u8* address) {
    MOELINK_UNROLL
    for (int v = 0; v < kVectors; ++v) vectors[v] = ld_nc_v4_once(address + v * 16);
  }
  MOELINK_DEVICE void load(const u8* address) {
    MOELINK_UNROLL
    for (int v = 0; v < kVectors; ++v) vectors[v] = ld_v4(address + v * 16);
  }
  /// What a peer wrote, after its flag was acquired.
  MOELINK_DEVICE void load_from_peer(const u8* address) {
    MOELINK_UNROLL
    for (int v = 0; v < kVectors; ++v) vectors[v] = ld_v4_once(address + v * 16);
  }
  MOELINK_DEVICE void store(u8* address) const {
    MOELINK_UNROLL
    for (int v = 0; v < kVectors; ++v) st_v4(address + v * 16, vectors[v]);
  }
  /// As lines, `offset_bytes` (before they are) behind those at `base`.
  MOELINK_DEVICE void store_lines(u8* base, i64 offset_bytes, u32 tag) const {
    MOELINK_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      st_lines_sys(base + kLineExpansion * (offset_bytes + v * 16), vectors[v], tag);
    }
  }
  /// In block scratch.
  MOELINK_DEVICE void load_scratch(const u8* address) {
    MOELINK_UNROLL
    for (int v = 0; v < kVectors; ++v) vectors[v] = reinterpret_cast<const Vec16*>(address)[v];
  }
  MOELINK_DEVICE void store_scratch(u8* address) const {
    MOELINK_UNROLL
    for (int v = 0; v < kVectors; ++v) reinterpret_cast<Vec16*>(address)[v] = vectors[v];
  }
  MOELINK_DEVICE void to_floats(float* values) const {
    MOELINK_UNROLL
    for (int v = 0; v < kVectors; ++v) unpack<E>(vectors[v], values + v * kPerVector);
  }
  MOELINK_DEVICE void from_floats(const float* values) {
    MOELINK_UNROLL
    for (int v = 0; v < kVectors; ++v) vectors[v] = pack<E>(values + v * kPerVector);
  }
};

/// The top_k words at `address`, by loads as wide as top_k allows (the array is a row of a matrix that starts at a
/// multiple of 16 bytes).
template <int kCount, class T>
MOELINK_DEVICE void load_words(T* words, const T* address) {
  static_assert(sizeof(T) == 4);
  if constexpr (kCount % 4 == 0) {
    MOELINK_UNROLL
    for (int i = 0; i < kCount; i += 4) {
      const Vec16 four = ld_v4(address + i);
      words[i] = __builtin_bit_cast(T, four.x);
      words[i + 1] = __builtin_bit_cast(T, four.y);
      words[i + 2] = __builtin_bit_cast(T, four.z);
      words[i + 3] = __builtin_bit_cast(T, four.w);
    }
  } else {
    MOELINK_UNROLL
    for (int i = 0; i < kCount; ++i) words[i] = address[i];
  }
}

/// The rows of one sum and their weights, in registers: kSpec has `input` and `top_k`.
template <auto kSpec, int kUnit>
struct HeldRows {
  static constexpr int kBytes = kUnit * bytes_of(kSpec.input);
  static constexpr int kAtOnce = min_of(kSpec.top_k, 128 / kBytes);  // rows in flight: 128 bytes a thread
  i32 indices[kSpec.top_k];
  float weights[kSpec.top_k];

  MOELINK_DEVICE void load(const RowSum& sum) {
    load_words<kSpec.top_k>(indices, sum.indices);
    if (sum.weights != nullptr) load_words<kSpec.top_k>(weights, sum.weights);
  }

  /// Adds unit `unit` of every row.
  MOELINK_DEVICE void add_to(float* total, const RowSum& sum, int unit) const {
    MOELINK_UNROLL
    for (int first = 0; first < kSpec.top_k; first += kAtOnce) {
      Elements<kSpec.input, kUnit> rows[kAtOnce];
      MOELINK_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int k = first + j;
        if (k >= kSpec.top_k || static_cast<u32>(indices[k]) >= sum.num_rows) continue;
        rows[j].load_once(sum.rows + indices[k] * sum.row_stride_bytes + static_cast<i64>(unit) * kBytes);
      }
      MOELINK_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int k = first + j;
        if (k >= kSpec.top_k || static_cast<u32>(indices[k]) >= sum.num_rows) continue;
        float values[kUnit];
        rows[j].to_floats(values);
        MOELINK_UNROLL
        for (int i = 0; i < kUnit; ++i) {
          total[i] = add_rn(total[i], sum.weights == nullptr ? values[i] : mul_rn(values[i], weights[k]));
        }
      }
    }
  }
};

/// By the block: elements [begin, end) of the sum, both multiples of kElementsPerUnit.
template <class Exec, class S>
MOELINK_DEVICE void reduce_range(const Exec& ex, S, const RowSum& sum, int begin, int end) {
  constexpr auto kSpec = S{}();
  constexpr int kUnit = kElementsPerUnit<S>;
  constexpr int kOutBytes = kUnit * bytes_of(kSpec.output);

  HeldRows<kSpec, kUnit> rows;
  rows.load(sum);
  const bool wanted = sum.token < *sum.num_tokens;
  for (int unit = begin / kUnit + ex.thread(); unit < end / kUnit; unit += ex.num_threads()) {
    float total[kUnit];
    MOELINK_UNROLL
    for (int i = 0; i < kUnit; ++i) total[i] = 0.0F;
    u8* out = sum.output + static_cast<i64>(unit) * kOutBytes;
    Elements<kSpec.output, kUnit> result;
    if (sum.accumulate) {
      result.load(out);
      result.to_floats(total);
    }
    rows.add_to(total, sum, unit);
    if (sum.shared != nullptr) {
      Elements<kSpec.input, kUnit> row;
      float values[kUnit];
      row.load_once(sum.shared + static_cast<i64>(unit) * kUnit * bytes_of(kSpec.input));
      row.to_floats(values);
      MOELINK_UNROLL
      for (int i = 0; i < kUnit; ++i) total[i] = add_rn(total[i], values[i]);
    }
    result.from_floats(total);
    if (wanted) result.store(out);
  }
}

/// By the block: part `part` of 2^log2_parts of the sum.
template <class Exec, class S>
MOELINK_DEVICE void reduce_row(const Exec& ex, S spec, const RowSum& sum, int part, int log2_parts) {
  constexpr int kUnit = kElementsPerUnit<S>;
  constexpr int kUnits = static_cast<int>(S{}().hidden / kUnit);
  const int units_per_part = (kUnits + (1 << log2_parts) - 1) >> log2_parts;
  const int end = min_of(units_per_part * (part + 1), kUnits);
  reduce_range(ex, spec, sum, units_per_part * part * kUnit, end * kUnit);
}

#else

template <class Exec, class S>
void reduce_range(const Exec&, S spec, const RowSum& sum, i64 begin, i64 end) {
  if (sum.token >= *sum.num_tokens) return;
  const u8* rows[kMaxTopK + 1];
  float weights[kMaxTopK + 1];
  for (int k = 0; k < spec().top_k; ++k) {
    const i64 row = sum.indices[k];
    rows[k] = static_cast<u32>(row) < sum.num_rows
                  ? sum.rows + row * sum.row_stride_bytes + begin * bytes_of(spec().input)
                  : nullptr;
    weights[k] = sum.weights == nullptr ? 1.0F : sum.weights[k];
  }
  rows[spec().top_k] = sum.shared == nullptr ? nullptr : sum.shared + begin * bytes_of(spec().input);
  weights[spec().top_k] = 1.0F;
  host_reduce_row(spec().input, spec().output,
                  {.rows = rows,
                   .weights = sum.weights == nullptr ? nullptr : weights,
                   .num_rows = spec().top_k + (sum.shared == nullptr ? 0 : 1),
                   .output = sum.output + begin * bytes_of(spec().output),
                   .count = end - begin,
                   .accumulate = sum.accumulate,
                   .streaming = sum.streaming});
  if (sum.streaming) host_stream_fence();
}

template <class Exec, class S>
void reduce_row(const Exec& ex, S spec, const RowSum& sum, int part, int log2_parts) {
  constexpr i64 kUnit = 8;  // parts begin at whole units, as on a GPU
  const i64 units_per_part = ceil_div(ceil_div(spec().hidden, kUnit), i64{1} << log2_parts);
  const i64 begin = min_of(units_per_part * part * kUnit, static_cast<i64>(spec().hidden));
  const i64 end = min_of(begin + units_per_part * kUnit, static_cast<i64>(spec().hidden));
  reduce_range(ex, spec, sum, begin, end);
}

#endif

}  // namespace moelink

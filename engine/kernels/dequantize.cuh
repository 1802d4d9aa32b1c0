// Rows of a block format as numbers again: what a product reads of rows that were quantised for the way to their
// expert. A thread takes eight elements at a time, which always share a scale; element * scale is rounded once more, to
// `element`.
#pragma once

#include "engine/kernels/primitives/chunk.cuh"
#include "moelink/device/primitives/minifloat.cuh"
#include "moelink/protocol/quant.hpp"

namespace moelink::engine {

struct DequantizeSpec {
  i64 hidden;  ///< elements of a row, a multiple of 16
  i32 threads;
  QuantFormat format;
  Element element;  ///< of the output

  template <class Visit>
  constexpr auto fields(Visit&& visit) const {
    return visit(hidden, threads, format, element);
  }
};

struct DequantizeArgs {
  const void* rows;    ///< [rows, quant_bytes(hidden)], dense
  const void* scales;  ///< [rows, quant_blocks(hidden)]
  i64 scale_stride_bytes;
  const float* tensor_scale;  ///< nvfp4: in device memory
  void* output;               ///< [rows, hidden]
  const i64* num_rows;        ///< in device memory: ExpertBatch::offsets[num_local_experts]
};

struct Dequantize {
  static constexpr const char* kName = "Dequantize";
  static constexpr const char* kHeader = "engine/kernels/dequantize.cuh";
  using Spec = DequantizeSpec;
  using Args = DequantizeArgs;

  static constexpr int kUnit = 8;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) {
      constexpr Element kElement = decltype(element){}();
      const i64 units_per_row = spec().hidden / kUnit;
      const i64 num_units = *args.num_rows * units_per_row;
      const i64 step = static_cast<i64>(ex.num_blocks()) * ex.num_threads();
      const float tensor_scale = spec().format == QuantFormat::nvfp4 ? *args.tensor_scale : 1.0F;
      for (i64 i = static_cast<i64>(ex.block()) * ex.num_threads() + ex.thread(); i < num_units; i += step) {
        const i64 row = i / units_per_row;
        const i64 unit = i % units_per_row;
        const u8* scales = static_cast<const u8*>(args.scales) + row * args.scale_stride_bytes;
        const float scale = scale_of(spec, scales, unit * kUnit / block_elements(spec().format), tensor_scale);
        float values[kUnit];
        decode(spec, args.rows, i, values);
        for (int j = 0; j < kUnit; ++j) values[j] = mul_rn(values[j], scale);
        store<kElement>(row_at<kElement>(args.output, row, spec().hidden), unit, values);
      }
    });
  }

 private:
  template <class S>
  MOELINK_DEVICE static float scale_of(S spec, const u8* scales, i64 block, float tensor_scale) {
    switch (spec().format) {
      case QuantFormat::mxfp8:
      case QuantFormat::mxfp4:
        return float_from_e8m0(scales[block]);
      case QuantFormat::nvfp4:
        return mul_rn(float_from_e4m3(scales[block]), tensor_scale);
      default:
        return float_from_bits(load_word(scales, block));
    }
  }

  /// The elements of unit `index`, counted over all rows.
  template <class S>
  MOELINK_DEVICE static void decode(S spec, const void* rows, i64 index, float* values) {
    if (is_fp4(spec().format)) {
      const u32 word = load_word(rows, index);
      MOELINK_UNROLL
      for (int j = 0; j < kUnit; ++j) values[j] = float_from_e2m1(static_cast<u8>(word >> (4 * j) & 0xf));
      return;
    }
    const u32 words[2] = {load_word(rows, 2 * index), load_word(rows, 2 * index + 1)};
    MOELINK_UNROLL
    for (int j = 0; j < kUnit; ++j) {
      values[j] = float_from_e4m3(static_cast<u8>(words[j / 4] >> (8 * (j % 4)) & 0xff));
    }
  }

  template <Element E>
  MOELINK_DEVICE static void store(void* row, i64 unit, const float* values) {
    if constexpr (E == Element::float32) {
      store_chunk<E>(row, 2 * unit, values);
      store_chunk<E>(row, 2 * unit + 1, values + 4);
    } else {
      store_chunk<E>(row, unit, values);
    }
  }
};

}  // namespace moelink::engine

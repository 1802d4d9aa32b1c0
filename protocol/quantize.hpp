// What the host and the quantisation kernels agree on.
#pragma once

#include "moelink/protocol/element.hpp"
#include "moelink/protocol/quant.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// Elements that a thread reads at once: 16 bytes.
inline constexpr i32 kQuantizeUnit = 8;

struct QuantizeSpec {
  QuantFormat format = QuantFormat::none;
  Element input = Element::bfloat16;  ///< bfloat16 or float16
  i32 columns = 0;                    ///< a multiple of kQuantizeUnit
  i32 units_at_once = 1;              ///< that a thread of a GPU reads before it waits
  i32 threads = 0;
  i32 blocks_per_sm = 1;  ///< bounds registers: so many wait for memory together

  constexpr auto fields(auto&& visit) const {
    return visit(format, input, columns, units_at_once, threads, blocks_per_sm);
  }
};

/// Measured on an H200: few registers, so that many warps wait for memory, or convert, beside those that store.
constexpr QuantizeSpec with_threads(QuantizeSpec spec) {
  spec.units_at_once = 2;
  spec.threads = 128;
  spec.blocks_per_sm = 10;
  return spec;
}

/// The shares of a row that warps of a GPU read at once.
struct QuantizeTiles {
  i32 per_row;
  i32 columns;  ///< of a tile, a multiple of 256; the last of a row may have fewer

  constexpr explicit QuantizeTiles(const QuantizeSpec& spec) {
    const i32 chunks = ceil_div(spec.columns, 32 * kQuantizeUnit);
    per_row = ceil_div(chunks, spec.units_at_once);
    columns = ceil_div(chunks, per_row) * 32 * kQuantizeUnit;
  }
};

struct QuantizeKernelArgs {
  const void* input;  ///< [num_rows, columns], 16-byte aligned rows
  i64 input_stride_bytes;
  void* output;  ///< [num_rows, quant_bytes(columns)], rows aligned to the bytes of 8 elements
  i64 output_stride_bytes;
  void* scales;
  ScaleLayout scale_layout;
  i64 scale_stride;            ///< row_major: scales from one row to the next; column_major: from one block to the next
  const float* tensor_scale;   ///< nvfp4: one value in device memory, or null: 1
  const i32* device_num_rows;  ///< or null
  i32 num_rows;                ///< the count, or its upper bound
};

struct ArrangeScalesSpec {
  i32 bytes = 0;       ///< of one scale: 1 or 4
  i32 num_blocks = 0;  ///< scales of one row
  i32 threads = 0;

  constexpr auto fields(auto&& visit) const { return visit(bytes, num_blocks, threads); }
};

struct ArrangeScalesArgs {
  const void* from;  ///< [num_rows, num_blocks], row_major
  i64 from_stride;   ///< scales from one row to the next
  void* to;
  ScaleLayout layout;
  i64 to_stride;  ///< column_major: scales from one block to the next
  i32 num_rows;
};

/// Where scale (row, block) stands, in scales.
MOELINK_DEVICE constexpr i64 scale_index(ScaleLayout layout, i64 stride, i64 row, i64 block, i64 num_blocks) {
  switch (layout) {
    case ScaleLayout::row_major:
      return row * stride + block;
    case ScaleLayout::column_major:
      return block * stride + row;
    case ScaleLayout::swizzled:
      return swizzled_scale_offset(row, block, num_blocks);
  }
  return 0;
}

}  // namespace moelink

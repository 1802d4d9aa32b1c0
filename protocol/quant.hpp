// Low-precision rows: which formats there are, and how many bytes they take. How values are rounded and scales chosen:
// docs/low-precision.md.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// Block formats: neighbouring elements of a row share a scale.
enum class QuantFormat : u8 {
  none,
  fp8,       ///< e4m3, an fp32 scale for 128 elements
  fp8_pow2,  ///< the same, scales are powers of two
  mxfp8,     ///< e4m3, an e8m0 scale for 32 elements (OCP microscaling)
  mxfp4,     ///< e2m1, an e8m0 scale for 32 elements (OCP microscaling)
  nvfp4,     ///< e2m1, an e4m3 scale for 16 elements, and an fp32 scale for the tensor that the caller supplies
};

/// Elements that share a scale.
MOELINK_DEVICE constexpr i32 block_elements(QuantFormat format) {
  switch (format) {
    case QuantFormat::none:
      return 0;
    case QuantFormat::fp8:
    case QuantFormat::fp8_pow2:
      return 128;
    case QuantFormat::mxfp8:
    case QuantFormat::mxfp4:
      return 32;
    case QuantFormat::nvfp4:
      return 16;
  }
  return 0;
}
MOELINK_DEVICE constexpr bool is_fp4(QuantFormat format) {
  return format == QuantFormat::mxfp4 || format == QuantFormat::nvfp4;
}
MOELINK_DEVICE constexpr i32 bytes_per_scale(QuantFormat format) {
  return format == QuantFormat::none ? 0 : format == QuantFormat::fp8 || format == QuantFormat::fp8_pow2 ? 4 : 1;
}
/// Bytes of `count` elements, an even number.
MOELINK_DEVICE constexpr i64 quant_bytes(QuantFormat format, i64 count) { return is_fp4(format) ? count / 2 : count; }
/// Bytes of 16-bit elements that become one byte; 1 where nothing is quantised.
MOELINK_DEVICE constexpr i32 token_bytes_per_byte(QuantFormat format) {
  return format == QuantFormat::none ? 1 : is_fp4(format) ? 4 : 2;
}
/// Blocks of a row; the last one may be short.
MOELINK_DEVICE constexpr i64 quant_blocks(QuantFormat format, i64 count) {
  return ceil_div(count, static_cast<i64>(block_elements(format)));
}
MOELINK_DEVICE constexpr i64 quant_scale_bytes(QuantFormat format, i64 count) {
  return quant_blocks(format, count) * bytes_per_scale(format);
}

/// Where the scales of a matrix stand.
enum class ScaleLayout : u8 {
  row_major,     ///< [rows][blocks]
  column_major,  ///< [blocks][padded rows]: what Hopper's block-scaled GEMMs read
  swizzled,      ///< tiles of 128 rows by 4 blocks, one byte each: what Blackwell's tensor cores read
};

/// Byte of scale (row, block) in the swizzled layout, where a row of tiles is ceil(blocks / 4) tiles.
MOELINK_DEVICE constexpr i64 swizzled_scale_offset(i64 row, i64 block, i64 num_blocks) {
  const i64 tile = row / 128 * ceil_div(num_blocks, i64{4}) + block / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}
/// Bytes of the swizzled layout: whole tiles.
MOELINK_DEVICE constexpr i64 swizzled_scale_bytes(i64 num_rows, i64 num_blocks) {
  return ceil_div(num_rows, i64{128}) * ceil_div(num_blocks, i64{4}) * 512;
}

}  // namespace moelink

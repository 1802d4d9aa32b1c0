// Rows of bf16 or fp16 to a block format, each element read once.
//
// A warp has a tile (QuantizeTiles), which it reads at once and leaves after: blocks that come and go keep loads and
// stores of different tiles under way together, better than blocks that stay. Of each 256 neighbouring elements of a row
// (Blackwell: 512) a lane has eight (16), by one load as wide as the chip has, and the lanes of a block of scales (2, 4
// or 16; Blackwell: half of that) find its largest magnitude by shuffles. Every lane then derives the same scale; the
// first of the block stores it. On the host a thread has a row.
//
// Ordering: nothing is shared between warps. Memory owned: none.
#pragma once

#include "moelink/device/exec/spec.cuh"
#include "moelink/device/primitives/quantize.cuh"
#include "moelink/device/primitives/quantize_lanes.cuh"
#include "moelink/device/ptx/vector.cuh"
#include "moelink/protocol/quantize.hpp"

namespace moelink {

struct Quantize {
  using Spec = QuantizeSpec;
  using Args = QuantizeKernelArgs;
  static constexpr const char* kName = "Quantize";
  static constexpr const char* kHeader = "moelink/device/quant/quantize.cuh";

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    const i32 num_rows =
        args.device_num_rows == nullptr ? args.num_rows : min_of(max_of(*args.device_num_rows, 0), args.num_rows);
    with_quant_format(spec().format, [&](auto format) { quantize_as<format()>(ex, spec, args, num_rows); });
  }

 private:
  MOELINK_DEVICE static float tensor_scale(const Args& args) {
    return args.tensor_scale == nullptr ? 1.0F : ld_nc_shared_by_all(args.tensor_scale);
  }

  template <QuantFormat F, class Exec, class S>
  MOELINK_DEVICE static void quantize_as(const Exec& ex, S spec, const Args& args, i32 num_rows) {
    with_element(spec().input, [&](auto element) {
      if constexpr (element() != Element::float32) {
        quantize_rows<F, element()>(ex, spec, args, num_rows);
      }
    });
  }

#if MOELINK_ON_DEVICE
  template <QuantFormat F, Element E, class Exec, class S>
  MOELINK_DEVICE static void quantize_rows(const Exec& ex, S, const Args& args, i32 num_rows) {
    constexpr QuantizeTiles kTiles(S{}());
    const i64 num_tiles = i64{num_rows} * kTiles.per_row;
    const i64 num_warps = static_cast<i64>(ex.num_blocks()) * ex.num_warps();
#pragma unroll 1
    for (i64 tile = static_cast<i64>(ex.block()) * ex.num_warps() + ex.warp(); tile < num_tiles; tile += num_warps) {
      const u32 index = static_cast<u32>(tile);  // no memory holds 2^32: shares of a row have 512 bytes or more
      quantize_tile<F, E>(ex, S{}, args, index / kTiles.per_row,
                          static_cast<i32>(index % kTiles.per_row) * kTiles.columns);
    }
  }

  /// Columns first_column, ... of a row.
  template <QuantFormat F, Element E, class Exec, class S>
  MOELINK_DEVICE static void quantize_tile(const Exec& ex, S, const Args& args, i64 row, i32 first_column) {
    constexpr QuantizeTiles kTiles(S{}());
    constexpr i32 kColumns = S{}().columns;
    constexpr i32 kChunk = 32 * kLaneElements;  // columns
    constexpr int kChunks = ceil_div(kTiles.columns, kChunk);
    constexpr bool kIsFull = kColumns % kTiles.columns == 0 && kTiles.columns % kChunk == 0;
    const i32 column = first_column + ex.lane() * kLaneElements;
    const i32 end = min_of(first_column + kTiles.columns, kColumns);
    // Elements from the lane's first of a chunk on; not above 0: it has none.
    const auto left = [&](int chunk) { return kIsFull ? kLaneElements : end - column - chunk * kChunk; };

    const u8* const from = static_cast<const u8*>(args.input) + row * args.input_stride_bytes + column * 2;
    Vec16 held[kChunks][kWideVectors];
    MOELINK_UNROLL
    for (int i = 0; i < kChunks; ++i) {
      MOELINK_UNROLL
      for (int j = 0; j < kWideVectors; ++j) held[i][j] = Vec16{0, 0, 0, 0};
      if (left(i) > 0) ld_nc_wide_once(from + i * kChunk * 2, left(i) * 2, held[i]);
    }
    const TensorScale<F> tensor(tensor_scale(args));
    u8* const to = static_cast<u8*>(args.output) + row * args.output_stride_bytes + quant_bytes(F, column);
    // A multiple of four blocks is as far everywhere, whatever the layout; others are never tiled.
    constexpr i64 kBlocks = quant_blocks(F, kColumns);
    const i64 first_scale = scale_index(args.scale_layout, args.scale_stride, row, column / block_elements(F), kBlocks);
    const i64 scale_step = scale_index(args.scale_layout, args.scale_stride, 0, kChunk / block_elements(F), kBlocks);
    MOELINK_UNROLL
    for (int i = 0; i < kChunks; ++i) {
      const LaneBlock quantized = quantize_lanes<F, E>(ex, held[i], tensor);
      if (left(i) <= 0) continue;
      store_lane<F>(to + i * quant_bytes(F, kChunk), quantized.elements, left(i));
      if (ex.lane() % kLanesPerBlock<F> != 0) continue;
      store_scale<F>(args.scales, first_scale + i * scale_step, quantized.scale_bits);
    }
  }
#else
  template <QuantFormat F, Element E, class Exec, class S>
  static void quantize_rows(const Exec& ex, S spec, const Args& args, i32 num_rows) {
    const i64 num_blocks = quant_blocks(F, spec().columns);
    const float scale = tensor_scale(args);
    for (i64 row = ex.block(); row < num_rows; row += ex.num_blocks()) {
      const u16* from =
          reinterpret_cast<const u16*>(static_cast<const u8*>(args.input) + row * args.input_stride_bytes);
      u8* to = static_cast<u8*>(args.output) + row * args.output_stride_bytes;
      for (i64 block = 0; block < num_blocks; ++block) {
        const i64 begin = block * block_elements(F);
        const i64 end = min_of(begin + block_elements(F), static_cast<i64>(spec().columns));
        const u32 bits = host_quantize_block<F, E>(from + begin, end - begin, scale, to + quant_bytes(F, begin));
        store_scale<F>(args.scales, scale_index(args.scale_layout, args.scale_stride, row, block, num_blocks), bits);
      }
    }
  }
#endif
};

}  // namespace moelink

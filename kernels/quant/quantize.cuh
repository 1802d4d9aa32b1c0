// Rows of bf16 or fp16 to a block format, each element read once.
//
// A warp has 256 neighbouring elements of a row at a time (Blackwell: 512): a lane has eight (16), by one load as wide
// as the chip has, and the lanes of a block (2, 4 or 16; Blackwell: half of that) find its largest magnitude by
// shuffles. Every lane then derives the same scale; the first of the block stores it. On the host a thread has a row.
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
    const float tensor_scale = args.tensor_scale == nullptr ? 1.0F : *args.tensor_scale;
    with_quant_format(spec().format,
                      [&](auto format) { quantize_as<format()>(ex, spec, args, num_rows, tensor_scale); });
  }

 private:
  template <QuantFormat F, class Exec, class S>
  MOELINK_DEVICE static void quantize_as(const Exec& ex, S spec, const Args& args, i32 num_rows, float tensor_scale) {
    with_element(spec().input, [&](auto element) {
      if constexpr (element() != Element::float32) {
        quantize_rows<F, element()>(ex, spec, args, num_rows, tensor_scale);
      }
    });
  }

#if MOELINK_ON_DEVICE
  /// A warp has one chunk of every so many rows: only rows change from one step to the next. Where there are fewer
  /// warps than chunks it goes on with another chunk.
  template <QuantFormat F, Element E, class Exec, class S>
  MOELINK_DEVICE static void quantize_rows(const Exec& ex, S, const Args& args, i32 num_rows, float tensor_scale) {
    constexpr u32 kUnits = static_cast<u32>(ceil_div(S{}().columns, kLaneElements));
    constexpr u32 kChunks = (kUnits + 31) / 32;
    const u32 num_warps = static_cast<u32>(ex.num_blocks() * ex.num_warps());
    const u32 warp = static_cast<u32>(ex.block() * ex.num_warps() + ex.warp());
    const TensorScale<F> tensor(tensor_scale);
    // As many rows at once as there are warps for, at least one.
    const u32 chunk_step = min_of(num_warps, kChunks);
    const i32 rows_at_once = static_cast<i32>(num_warps / chunk_step);
    const i32 first_row = static_cast<i32>(warp / chunk_step);
    if (first_row >= rows_at_once) return;
#pragma unroll 1
    for (u32 chunk = warp % chunk_step; chunk < kChunks; chunk += chunk_step) {
      quantize_chunk<F, E>(ex, S{}, args, {chunk, first_row, rows_at_once, num_rows}, tensor);
    }
  }

  /// Chunk `chunk` of rows first, first + step, ... below `end`.
  struct Share {
    u32 chunk;
    i32 first;
    i32 step;
    i32 end;
  };

  template <QuantFormat F, Element E, class Exec, class S>
  MOELINK_DEVICE static void quantize_chunk(const Exec& ex, S, const Args& args, const Share& share,
                                            const TensorScale<F>& tensor) {
    constexpr int kAtOnce = 4 / kWideVectors;  // rows whose loads are under way together
    constexpr i32 kColumns = S{}().columns;
    constexpr i64 kBlocks = quant_blocks(F, kColumns);
    const i32 unit = static_cast<i32>(share.chunk) * 32 + ex.lane();
    const i32 left = kColumns - unit * kLaneElements;  // not above 0: this lane has nothing
    const u8* const from = static_cast<const u8*>(args.input) + unit * kWideBytes;
    u8* const to = static_cast<u8*>(args.output) + unit * static_cast<i32>(quant_bytes(F, kLaneElements));
    const i32 block = unit / kLanesPerBlock<F>;
    const bool has_scale = left > 0 && unit % kLanesPerBlock<F> == 0;
    const bool is_tiled = args.scale_layout == ScaleLayout::swizzled;
    const bool is_row_major = args.scale_layout == ScaleLayout::row_major;
    const i64 scale_row = is_row_major ? args.scale_stride : 1;
    const i64 first_scale = is_row_major ? block : block * args.scale_stride;
#pragma unroll 1
    for (i64 first = share.first; first < share.end; first += kAtOnce * i64{share.step}) {
      Vec16 held[kAtOnce][kWideVectors];
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        MOELINK_UNROLL
        for (int j = 0; j < kWideVectors; ++j) held[i][j] = Vec16{0, 0, 0, 0};
        const i64 row = first + i * i64{share.step};
        if (row < share.end && left > 0) ld_nc_wide_once(from + row * args.input_stride_bytes, 2 * left, held[i]);
      }
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const i64 row = first + i * i64{share.step};
        if (row >= share.end) break;
        const LaneBlock quantized = quantize_lanes<F, E>(ex, held[i], tensor);
        if (left > 0) store_lane<F>(to + row * args.output_stride_bytes, quantized.elements, left);
        if (!has_scale) continue;
        const i64 index = is_tiled ? swizzled_scale_offset(row, block, kBlocks) : first_scale + row * scale_row;
        store_scale<F>(args.scales, index, quantized.scale_bits);
      }
    }
  }
#else
  template <QuantFormat F, Element E, class Exec, class S>
  static void quantize_rows(const Exec& ex, S spec, const Args& args, i32 num_rows, float tensor_scale) {
    const i64 num_blocks = quant_blocks(F, spec().columns);
    for (i64 row = ex.block(); row < num_rows; row += ex.num_blocks()) {
      const u16* from =
          reinterpret_cast<const u16*>(static_cast<const u8*>(args.input) + row * args.input_stride_bytes);
      u8* to = static_cast<u8*>(args.output) + row * args.output_stride_bytes;
      for (i64 block = 0; block < num_blocks; ++block) {
        const i64 begin = block * block_elements(F);
        const i64 end = min_of(begin + block_elements(F), static_cast<i64>(spec().columns));
        const u32 bits = host_quantize_block<F, E>(from + begin, end - begin, tensor_scale, to + quant_bytes(F, begin));
        store_scale<F>(args.scales, scale_index(args.scale_layout, args.scale_stride, row, block, num_blocks), bits);
      }
    }
  }
#endif
};

}  // namespace moelink

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

  template <QuantFormat F>
  MOELINK_DEVICE static void store_scale(const Args& args, i64 row, i64 block, i64 num_blocks, u32 bits) {
    const i64 index = scale_index(args.scale_layout, args.scale_stride, row, block, num_blocks);
    if constexpr (bytes_per_scale(F) == 4) {
      static_cast<u32*>(args.scales)[index] = bits;
    } else {
      static_cast<u8*>(args.scales)[index] = static_cast<u8>(bits);
    }
  }

#if MOELINK_ON_DEVICE
  /// A warp's share of a row.
  struct Place {
    i64 row;
    i32 chunk;
  };

  template <QuantFormat F, Element E, class Exec, class S>
  MOELINK_DEVICE static void quantize_rows(const Exec& ex, S, const Args& args, i32 num_rows, float tensor_scale) {
    constexpr int kAtOnce = 4 / kWideVectors;  // chunks whose loads are under way together
    constexpr i32 kUnits = ceil_div(S{}().columns, kLaneElements);
    constexpr i32 kChunks = (kUnits + 31) / 32;
    constexpr i64 kBlocks = quant_blocks(F, S{}().columns);
    constexpr i32 kUnitBytes = static_cast<i32>(quant_bytes(F, kLaneElements));
    // Places advance by a fixed step: a division for each would cost as much as a block's scale.
    const i64 num_warps = static_cast<i64>(ex.num_blocks()) * ex.num_warps();
    const i64 first = static_cast<i64>(ex.block()) * ex.num_warps() + ex.warp();
    const i64 step_rows = num_warps / kChunks;
    const i32 step_chunks = static_cast<i32>(num_warps % kChunks);
    Place next{first / kChunks, static_cast<i32>(first % kChunks)};
    while (next.row < num_rows) {
      Place at[kAtOnce];
      Vec16 held[kAtOnce][kWideVectors];
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        at[i] = next;
        next.row += step_rows;
        next.chunk += step_chunks;
        if (next.chunk >= kChunks) next = {next.row + 1, next.chunk - kChunks};
        const i32 unit = at[i].chunk * 32 + ex.lane();
        MOELINK_UNROLL
        for (int j = 0; j < kWideVectors; ++j) held[i][j] = Vec16{0, 0, 0, 0};
        if (at[i].row >= num_rows || unit >= kUnits) continue;
        const u8* row = static_cast<const u8*>(args.input) + at[i].row * args.input_stride_bytes;
        ld_nc_wide_once(row + unit * kWideBytes, 2 * S{}().columns - unit * kWideBytes, held[i]);
      }
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (at[i].row >= num_rows) break;
        const i32 unit = at[i].chunk * 32 + ex.lane();
        const LaneBlock quantized = quantize_lanes<F, E>(ex, held[i], tensor_scale);
        if (unit >= kUnits) continue;
        u8* to = static_cast<u8*>(args.output) + at[i].row * args.output_stride_bytes + unit * kUnitBytes;
        store_lane<F>(to, quantized.elements, S{}().columns - unit * kLaneElements);
        if (unit % kLanesPerBlock<F> == 0) {
          store_scale<F>(args, at[i].row, unit / kLanesPerBlock<F>, kBlocks, quantized.scale_bits);
        }
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
        store_scale<F>(args, row, block, num_blocks,
                       host_quantize_block<F, E>(from + begin, end - begin, tensor_scale, to + quant_bytes(F, begin)));
      }
    }
  }
#endif
};

}  // namespace moelink

// Rows of bf16 or fp16 to a block format, each element read once.
//
// A warp has 256 neighbouring elements of a row at a time: a lane has eight, by one 16-byte load, and the lanes of a
// block (2, 4 or 16) find its largest magnitude by shuffles. Every lane then derives the same scale; the first of the
// block stores it. On the host a thread has a row.
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
  template <QuantFormat F, Element E, class Exec, class S>
  MOELINK_DEVICE static void quantize_rows(const Exec& ex, S, const Args& args, i32 num_rows, float tensor_scale) {
    constexpr int kAtOnce = 4;  // chunks whose loads are under way together
    constexpr i32 kUnits = S{}().columns / kQuantizeUnit;
    constexpr i32 kChunks = (kUnits + 31) / 32;
    constexpr i64 kBlocks = quant_blocks(F, S{}().columns);
    constexpr i32 kUnitBytes = static_cast<i32>(quant_bytes(F, kQuantizeUnit));
    const i64 num_chunks = static_cast<i64>(num_rows) * kChunks;
    const i64 num_warps = static_cast<i64>(ex.num_blocks()) * ex.num_warps();
    for (i64 first = static_cast<i64>(ex.block()) * ex.num_warps() + ex.warp(); first < num_chunks;
         first += kAtOnce * num_warps) {
      Vec16 held[kAtOnce];
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const i64 chunk = first + i * num_warps;
        const i32 unit = static_cast<i32>(chunk % kChunks) * 32 + ex.lane();
        held[i] = Vec16{0, 0, 0, 0};
        if (chunk >= num_chunks || unit >= kUnits) continue;
        held[i] =
            ld_nc_v4_once(static_cast<const u8*>(args.input) + chunk / kChunks * args.input_stride_bytes + unit * 16);
      }
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const i64 chunk = first + i * num_warps;
        if (chunk >= num_chunks) break;
        const i64 row = chunk / kChunks;
        const i32 unit = static_cast<i32>(chunk % kChunks) * 32 + ex.lane();
        const LaneBlock<F> quantized = quantize_lanes<F, E>(ex, held[i], tensor_scale);
        if (unit >= kUnits) continue;
        u8* to = static_cast<u8*>(args.output) + row * args.output_stride_bytes + unit * kUnitBytes;
        if constexpr (kUnitBytes == 8) {
          *reinterpret_cast<uint2*>(to) = uint2{quantized.elements.low, quantized.elements.high};
        } else {
          *reinterpret_cast<u32*>(to) = quantized.elements.low;
        }
        if (unit % kLanesPerBlock<F> == 0) {
          store_scale<F>(args, row, unit / kLanesPerBlock<F>, kBlocks, quantized.scale_bits);
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

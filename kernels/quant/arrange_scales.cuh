// Scales of rows that have their final place, from row-major to what a GEMM reads. A thread has one scale at a time,
// neighbouring threads neighbouring rows, so that stores to columns and to tiles run together.
#pragma once

#include "moelink/device/exec/spec.cuh"
#include "moelink/protocol/quantize.hpp"

namespace moelink {

struct ArrangeScales {
  using Spec = ArrangeScalesSpec;
  using Args = ArrangeScalesArgs;
  static constexpr const char* kName = "ArrangeScales";
  static constexpr const char* kHeader = "moelink/device/quant/arrange_scales.cuh";

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    if (spec().bytes == 4) {
      arrange<u32>(ex, spec, args);
    } else {
      arrange<u8>(ex, spec, args);
    }
  }

 private:
  template <class T, class Exec, class S>
  MOELINK_DEVICE static void arrange(const Exec& ex, S spec, const Args& args) {
    const i64 num_rows = args.num_rows;
    const i64 step = static_cast<i64>(ex.num_blocks()) * ex.num_threads();
    for (i64 i = static_cast<i64>(ex.block()) * ex.num_threads() + ex.thread(); i < num_rows * spec().num_blocks;
         i += step) {
      const i64 block = i / num_rows;
      const i64 row = i - block * num_rows;
      static_cast<T*>(args.to)[scale_index(args.layout, args.to_stride, row, block, spec().num_blocks)] =
          static_cast<const T*>(args.from)[row * args.from_stride + block];
    }
  }
};

}  // namespace moelink

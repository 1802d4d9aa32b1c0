// Products of groups of few rows with a matrix each: what experts do in decode, where weights are read once and that is
// all that counts. A warp has a few outputs of one matrix, and takes the group's rows a few at a time: with more rows
// than that weights come from the cache again. The groups are known to the device alone, so that a step can be captured.
//  1. lanes take turns at chunks of the inputs: outputs x rows partial sums each
//  2. sums over the lanes; one lane stores
#pragma once

#include "engine/kernels/primitives/chunk.cuh"
#include "engine/kernels/primitives/reduce.cuh"

namespace moelink::engine {

struct FewRowsSpec {
  i64 inputs;  ///< whole chunks
  i64 outputs;
  i32 threads;
  Element element;

  template <class Visit>
  constexpr auto fields(Visit&& visit) const {
    return visit(inputs, outputs, threads, element);
  }
};

struct FewRowsArgs {
  const void* weights;  ///< [num_matrices, outputs, inputs]
  const void* input;    ///< [rows, inputs]
  void* output;         ///< [rows, outputs]
  const i64* offsets;   ///< [num_matrices] first row of each group
  const i32* counts;    ///< [num_matrices] rows of each
  i64 num_matrices;
};

struct FewRows {
  static constexpr const char* kName = "FewRows";
  static constexpr const char* kHeader = "engine/kernels/few_rows.cuh";
  using Spec = FewRowsSpec;
  using Args = FewRowsArgs;

  static constexpr int kOutputs = 4;  ///< of a warp
  static constexpr int kRows = 4;     ///< at a time

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) {
      constexpr Element kElement = decltype(element){}();
      const i64 tiles = ceil_div<i64>(spec().outputs, static_cast<i64>(ex.num_warps()) * kOutputs);
      for (i64 item = ex.block(); item < args.num_matrices * tiles; item += ex.num_blocks()) {
        const i64 matrix = item / tiles;
        const i64 first_output = (item % tiles * ex.num_warps() + ex.warp()) * kOutputs;
        if (first_output >= spec().outputs) continue;
        for (i32 row = 0; row < args.counts[matrix]; row += kRows) {
          multiply<kElement>(ex, spec, args, matrix, first_output, row);
        }
      }
    });
  }

 private:
  template <Element E, class Exec, class S>
  MOELINK_DEVICE static void multiply(const Exec& ex, S spec, const Args& args, i64 matrix, i64 first_output, i32 row) {
    constexpr int kWidth = chunk_width(E);
    const i64 first_row = args.offsets[matrix] + row;
    const int num_rows = min_of<int>(kRows, args.counts[matrix] - row);
    const int num_outputs = static_cast<int>(min_of<i64>(kOutputs, spec().outputs - first_output));
    const void* weights = row_at<E>(args.weights, matrix * spec().outputs + first_output, spec().inputs);
    const void* input = row_at<E>(args.input, first_row, spec().inputs);

    float sums[kRows][kOutputs] = {};
    for (i64 c = ex.lane(); c < spec().inputs / kWidth; c += Exec::kWarpSize) {
      float weight[kOutputs][kWidth];
      MOELINK_UNROLL
      for (int o = 0; o < kOutputs; ++o) {
        // Outputs and rows past the last repeat it: loads without branches, and nobody stores them.
        load_chunk<E>(row_at<E>(weights, min_of(o, num_outputs - 1), spec().inputs), c, weight[o]);
      }
      MOELINK_UNROLL
      for (int r = 0; r < kRows; ++r) {
        float value[kWidth];
        load_chunk<E>(row_at<E>(input, min_of(r, num_rows - 1), spec().inputs), c, value);
        MOELINK_UNROLL
        for (int o = 0; o < kOutputs; ++o) {
          MOELINK_UNROLL
          for (int i = 0; i < kWidth; ++i) sums[r][o] += weight[o][i] * value[i];
        }
      }
    }
    MOELINK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      MOELINK_UNROLL
      for (int o = 0; o < kOutputs; ++o) {
        const float sum = warp_sum(ex, sums[r][o]);
        if (ex.lane() == 0 && r < num_rows && o < num_outputs) {
          store_element<E>(row_at<E>(args.output, first_row + r, spec().outputs), first_output + o, sum);
        }
      }
    }
  }
};

}  // namespace moelink::engine

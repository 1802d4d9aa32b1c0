// RMS norm of rows, after adding something to them if asked to: the two ends of a block of a transformer. What layers
// add to stays in fp32, whatever type they compute in.
//  1. x += delta, in place; the sum of squares
//  2. output = x / sqrt(mean square + epsilon) * weight
// A block has a row; its threads read in step 2 what they wrote themselves in step 1.
#pragma once

#include "engine/kernels/primitives/chunk.cuh"
#include "engine/kernels/primitives/math.cuh"
#include "engine/kernels/primitives/reduce.cuh"

namespace moelink::engine {

struct RmsNormSpec {
  i64 hidden;        ///< elements of a row, whole chunks
  u32 epsilon_bits;  ///< of a float
  i32 threads;
  Element element;  ///< of weight and output
  bool adds;        ///< step 1 adds
  Element delta;    ///< what it adds: as `element`, or fp32

  template <class Visit>
  constexpr auto fields(Visit&& visit) const {
    return visit(hidden, epsilon_bits, threads, element, adds, delta);
  }
};

struct RmsNormArgs {
  float* x;                 ///< [.., hidden]
  const void* delta;        ///< [num_rows, hidden], if `adds`
  const float* delta_rest;  ///< a second summand where delta is fp32; or null
  const i32* row_of;        ///< [num_rows] rows of x; null: row i
  const void* weight;       ///< [hidden]
  void* output;             ///< [num_rows, hidden]
  void* rest;               ///< [num_rows, hidden] what rounding the output leaves; or null
  void* in_bf16;            ///< [num_rows, hidden] the output once more, rounded; or null
  i64 num_rows;
};

struct RmsNorm {
  static constexpr const char* kName = "RmsNorm";
  static constexpr const char* kHeader = "engine/kernels/rms_norm.cuh";
  static constexpr int kScratchBytes = 128;
  using Spec = RmsNormSpec;
  using Args = RmsNormArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) {
      constexpr Element kElement = decltype(element){}();
      for (i64 row = ex.block(); row < args.num_rows; row += ex.num_blocks()) {
        normalise<kElement>(ex, spec, args, row);
      }
    });
  }

 private:
  template <Element E, class Exec, class S>
  MOELINK_DEVICE static void normalise(const Exec& ex, S spec, const Args& args, i64 row) {
    constexpr int kWidth = chunk_width(E);
    const i64 num_chunks = spec().hidden / kWidth;
    float* x = args.x + (args.row_of != nullptr ? args.row_of[row] : row) * spec().hidden;

    float squares = 0;
    for (i64 c = ex.thread(); c < num_chunks; c += ex.num_threads()) {
      float values[kWidth];
      load_floats<E>(x, c, values);
      if (spec().adds) {
        float summands[kWidth];
        if (spec().delta == Element::float32) {
          load_floats<E>(row_at<Element::float32>(args.delta, row, spec().hidden), c, summands);
          if (args.delta_rest != nullptr) {
            float rest[kWidth];
            load_floats<E>(args.delta_rest + row * spec().hidden, c, rest);
            for (int i = 0; i < kWidth; ++i) summands[i] += rest[i];
          }
        } else {
          load_chunk<E>(row_at<E>(args.delta, row, spec().hidden), c, summands);
        }
        for (int i = 0; i < kWidth; ++i) values[i] += summands[i];
        store_floats<E>(x, c, values);
      }
      for (int i = 0; i < kWidth; ++i) squares += values[i] * values[i];
    }
    const float mean = block_sum(ex, squares) / static_cast<float>(spec().hidden);
    const float scale = inverse_sqrt(mean + float_from_bits(spec().epsilon_bits));

    for (i64 c = ex.thread(); c < num_chunks; c += ex.num_threads()) {
      float values[kWidth];
      float weights[kWidth];
      load_floats<E>(x, c, values);
      load_chunk<E>(args.weight, c, weights);
      for (int i = 0; i < kWidth; ++i) values[i] *= scale * weights[i];
      store_chunk<E>(row_at<E>(args.output, row, spec().hidden), c, values);
      if (args.rest != nullptr) store_rest<E>(row_at<E>(args.rest, row, spec().hidden), c, values);
      if (args.in_bf16 != nullptr) {
        void* rounded = row_at<Element::bfloat16>(args.in_bf16, row, spec().hidden);
        for (int i = 0; i < kWidth; ++i) store_element<Element::bfloat16>(rounded, c * kWidth + i, values[i]);
      }
    }
  }
};

}  // namespace moelink::engine

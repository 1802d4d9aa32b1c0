// The body of multiply_..., for the source files that are compiled for one processor each: with options that allow its
// instructions, and with -ffp-contract=fast, by which a multiplication and the addition behind it become one. Nothing
// of the standard library is used here: the linker may keep one copy of an inline function for the whole program, and
// it must not be one that this processor alone can run.
//
// Sums are vectors of the language, not loops that the compiler may vectorise for one number of rows and not for
// another: the code for any number of rows does the same to each of them.
#pragma once

#include "engine/math/panel.hpp"

// NOLINTBEGIN(misc-definitions-in-headers): each of those source files has a copy of its own, on purpose
namespace moelink::engine {
namespace {

// The processor's own vectors.
#if defined(__AVX512F__)
constexpr i64 kVectorBytes = 64;
#elif defined(__AVX__)
constexpr i64 kVectorBytes = 32;
#else
constexpr i64 kVectorBytes = 16;
#endif
/// Neighbouring products with one row.
typedef float Sums __attribute__((vector_size(kVectorBytes)));
constexpr i64 kLanes = kVectorBytes / static_cast<i64>(sizeof(float));
constexpr int kVectors = static_cast<int>(kPanelWidth / kLanes);  ///< of one row
static_assert(kPanelWidth % kLanes == 0);

/// Floats in memory are aligned to no more than a float. (A vector type with that alignment does not say so reliably:
/// g++ takes what is loaded through it for aligned all the same.)
Sums load(const float* source) {
  Sums sums;
  __builtin_memcpy(&sums, source, sizeof(sums));
  return sums;
}

void store(float* target, const Sums* sums, i64 width) {
  if (width == kPanelWidth) {
    __builtin_memcpy(target, sums, sizeof(Sums) * kVectors);
    return;
  }
  for (i64 i = 0; i < width; ++i) {
    target[i] = sums[i / kLanes][i % kLanes];
  }
}

template <int kRows>
void multiply_rows(const Panel& p, i64 first) {
  const float* input = p.input + first * p.inputs;
  Sums sums[kRows][kVectors] = {};
  for (i64 j = 0; j < p.inputs; ++j) {
    const float* weights = p.weights + j * kPanelWidth;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Sums weights_of_lanes = load(weights + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        sums[r][v] += input[r * p.inputs + j] * weights_of_lanes;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store(p.output + (first + r) * p.output_stride, sums[r], p.width);
  }
}

void multiply(const Panel& p) {
  i64 row = 0;
  for (; p.num_rows - row >= 8; row += 8) {
    multiply_rows<8>(p, row);
  }
  for (; p.num_rows - row >= 4; row += 4) {
    multiply_rows<4>(p, row);
  }
  for (; row < p.num_rows; ++row) {
    multiply_rows<1>(p, row);
  }
}

}  // namespace
}  // namespace moelink::engine
// NOLINTEND(misc-definitions-in-headers)

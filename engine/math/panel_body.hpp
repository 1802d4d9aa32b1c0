// The body of multiply_..., for the source files that are compiled for one processor each: with options that allow its
// instructions, and with -ffp-contract=fast, by which a multiplication and the addition behind it become one. Nothing of
// the standard library is used here: the linker may keep one copy of an inline function for the whole program, and it
// must not be one that this processor alone can run.
//
// Sums are vectors of the language, not loops that the compiler may vectorise for one number of rows and not for another:
// the code for any number of rows does the same to each of them.
#pragma once

#include "engine/math/panel.hpp"

// NOLINTBEGIN(misc-definitions-in-headers): each of those source files has a copy of its own, on purpose
namespace moelink::engine {
namespace {

/// Half a panel's products with one row.
typedef float Sums __attribute__((vector_size(64), aligned(4), may_alias));
constexpr i64 kLanes = sizeof(Sums) / sizeof(float);
static_assert(kPanelWidth == 2 * kLanes);

void store(float* target, const Sums& low, const Sums& high, i64 width) {
  if (width == kPanelWidth) {
    reinterpret_cast<Sums*>(target)[0] = low;
    reinterpret_cast<Sums*>(target)[1] = high;
    return;
  }
  for (i64 i = 0; i < width; ++i) {
    target[i] = i < kLanes ? low[i] : high[i - kLanes];
  }
}

template <int kRows>
void multiply_rows(const Panel& p, i64 first) {
  const float* input = p.input + first * p.inputs;
  Sums low[kRows] = {};
  Sums high[kRows] = {};
  for (i64 j = 0; j < p.inputs; ++j) {
    const auto* weights = reinterpret_cast<const Sums*>(p.weights + j * kPanelWidth);
    const Sums weights_low = weights[0];
    const Sums weights_high = weights[1];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float value = input[r * p.inputs + j];
      low[r] += value * weights_low;
      high[r] += value * weights_high;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store(p.output + (first + r) * p.output_stride, low[r], high[r], p.width);
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

// The inner part of products on the host: a panel of weights times rows.
#pragma once

#include "moelink/protocol/types.hpp"

#if defined(__x86_64__)
#define MOELINK_ENGINE_X86 1
#else
#define MOELINK_ENGINE_X86 0
#endif

namespace moelink::engine {

/// Outputs of a panel.
inline constexpr i64 kPanelWidth = 32;

struct Panel {
  const float* weights;  ///< [inputs, kPanelWidth]
  const float* input;    ///< [num_rows, inputs]
  float* output;         ///< of the first row, at the panel's first column
  i64 num_rows;
  i64 inputs;
  i64 output_stride;  ///< elements from row to row
  i64 width;          ///< columns that exist, up to kPanelWidth
};

/// The same for processors with different vectors. Each sum is taken in the order of the inputs, so that a row's bits do
/// not depend on the rows beside it. AVX2 and AVX-512 give the same bits; plain rounds products as well.
void multiply_plain(const Panel& panel);
void multiply_avx2(const Panel& panel);
void multiply_avx512(const Panel& panel);

}  // namespace moelink::engine

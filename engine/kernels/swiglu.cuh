// The middle of an expert: output = silu(gate) * up, for as many rows as the experts of this rank have got.
#pragma once

#include "engine/kernels/primitives/chunk.cuh"
#include "engine/kernels/primitives/math.cuh"

namespace moelink::engine {

struct SwigluSpec {
  i64 intermediate;  ///< elements of an output row, whole chunks
  i32 threads;
  Element element;

  template <class Visit>
  constexpr auto fields(Visit&& visit) const {
    return visit(intermediate, threads, element);
  }
};

struct SwigluArgs {
  const void* gate_up;  ///< [rows, 2 * intermediate]: gates, then ups
  void* output;         ///< [rows, intermediate]
  const i64* num_rows;  ///< in device memory: ExpertBatch::offsets[num_local_experts]
};

struct Swiglu {
  static constexpr const char* kName = "Swiglu";
  static constexpr const char* kHeader = "engine/kernels/swiglu.cuh";
  using Spec = SwigluSpec;
  using Args = SwigluArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) {
      constexpr Element kElement = decltype(element){}();
      constexpr int kWidth = chunk_width(kElement);
      const i64 chunks_per_row = spec().intermediate / kWidth;
      const i64 num_chunks = *args.num_rows * chunks_per_row;
      const i64 step = static_cast<i64>(ex.num_blocks()) * ex.num_threads();
      for (i64 i = static_cast<i64>(ex.block()) * ex.num_threads() + ex.thread(); i < num_chunks; i += step) {
        const i64 row = i / chunks_per_row;
        const i64 chunk = i % chunks_per_row;
        const void* input = row_at<kElement>(args.gate_up, row, 2 * spec().intermediate);
        float gate[kWidth];
        float up[kWidth];
        load_chunk<kElement>(input, chunk, gate);
        load_chunk<kElement>(input, chunks_per_row + chunk, up);
        for (int j = 0; j < kWidth; ++j) up[j] *= gate[j] / (1.0F + exp_of(-gate[j]));
        store_chunk<kElement>(row_at<kElement>(args.output, row, spec().intermediate), chunk, up);
      }
    });
  }
};

}  // namespace moelink::engine

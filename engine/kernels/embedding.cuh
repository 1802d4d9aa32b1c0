// Rows of the embedding's matrix, one for each token, as floats.
#pragma once

#include "engine/kernels/primitives/chunk.cuh"

namespace moelink::engine {

struct EmbeddingSpec {
  i64 hidden;  ///< elements of a row, whole chunks
  i32 threads;
  Element element;  ///< of the table

  template <class Visit>
  constexpr auto fields(Visit&& visit) const {
    return visit(hidden, threads, element);
  }
};

struct EmbeddingArgs {
  const i32* tokens;  ///< [num_rows]
  const void* table;  ///< [vocabulary, hidden]
  float* output;      ///< [num_rows, hidden]
  i64 num_rows;
};

struct Embedding {
  static constexpr const char* kName = "Embedding";
  static constexpr const char* kHeader = "engine/kernels/embedding.cuh";
  using Spec = EmbeddingSpec;
  using Args = EmbeddingArgs;

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    with_element(spec().element, [&](auto element) {
      constexpr Element kElement = decltype(element){}();
      for (i64 row = ex.block(); row < args.num_rows; row += ex.num_blocks()) {
        const void* from = row_at<kElement>(args.table, args.tokens[row], spec().hidden);
        float* to = args.output + row * spec().hidden;
        for (i64 c = ex.thread(); c < spec().hidden / chunk_width(kElement); c += ex.num_threads()) {
          float values[chunk_width(kElement)];
          load_chunk<kElement>(from, c, values);
          store_floats<kElement>(to, c, values);
        }
      }
    });
  }
};

}  // namespace moelink::engine

// The first half of a decoder layer: x += project(attention(heads(norm(x)))).
#pragma once

#include "engine/math/products.hpp"
#include "engine/model/config.hpp"
#include "engine/model/shard.hpp"
#include "engine/model/step.hpp"
#include "engine/model/weight_loader.hpp"
#include "moelink/all_reduce.hpp"

namespace moelink::engine {

/// Sums over the ranks that share the heads; none if each has all.
struct HeadSums {
  AllReduce* blocks = nullptr;   ///< of the model's type
  AllReduce* squares = nullptr;  ///< of float, for norms over all heads
};

class AttentionLayer {
 public:
  AttentionLayer(WeightLoader& loader, const ModelConfig& config, const Shard& shard, std::int64_t layer);

  /// One layer's part of the cache: [pages, kv heads, page_size, head_dim].
  struct Cache {
    void* keys = nullptr;
    void* values = nullptr;
  };

  /// Leaves what is to be added to x in act.block, for the norm of the next block to add.
  void run(const Step& step, const Cache& cache, const float* angles, const HeadSums& sums) const;

 private:
  QkNorm norm_;
  float scale_;
  std::int64_t hidden_;
  Buffer input_norm_;
  Weights heads_;      ///< queries, keys and values of this rank
  Buffer query_norm_;  ///< empty without one
  Buffer key_norm_;
  Weights projection_;  ///< from this rank's heads
};

}  // namespace moelink::engine

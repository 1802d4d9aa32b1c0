#include "engine/model/attention_layer.hpp"

#include <cmath>

#include "engine/base/text.hpp"
#include "engine/model/kernels.hpp"

namespace moelink::engine {
namespace {

Range times(Range range, std::int64_t factor) { return {range.begin * factor, range.end * factor}; }

}  // namespace

AttentionLayer::AttentionLayer(WeightLoader& loader, const ModelConfig& config, const Shard& shard, std::int64_t layer)
    : norm_(config.qk_norm),
      scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))),
      hidden_(config.hidden) {
  const std::string prefix = text("model.layers.", layer, '.');
  const std::string attention = prefix + "self_attn.";
  const std::int64_t query_size = config.num_heads * config.head_dim;
  const std::int64_t key_size = config.num_kv_heads * config.head_dim;
  const Range queries = times(shard.heads, config.head_dim);
  const Range keys = times(shard.kv_heads, config.head_dim);
  const auto rows_of = [&](const char* name, std::int64_t size, Range rows) {
    return MatrixSlice{.name = attention + name + "_proj.weight",
                       .num_rows = size,
                       .num_columns = config.hidden,
                       .rows = rows,
                       .columns = {0, config.hidden}};
  };
  input_norm_ = loader.vector(prefix + "input_layernorm.weight", config.hidden, {0, config.hidden});
  heads_ = loader.load({rows_of("q", query_size, queries), rows_of("k", key_size, keys), rows_of("v", key_size, keys)});
  projection_ = loader.load({{.name = attention + "o_proj.weight",
                              .num_rows = config.hidden,
                              .num_columns = query_size,
                              .rows = {0, config.hidden},
                              .columns = queries}});
  if (norm_ == QkNorm::per_head) {
    query_norm_ = loader.vector(attention + "q_norm.weight", config.head_dim, {0, config.head_dim});
    key_norm_ = loader.vector(attention + "k_norm.weight", config.head_dim, {0, config.head_dim});
  } else if (norm_ == QkNorm::all_heads) {
    query_norm_ = loader.vector(attention + "q_norm.weight", query_size, queries);
    key_norm_ = loader.vector(attention + "k_norm.weight", key_size, keys);
  }
}

void AttentionLayer::run(const Step& step, const Cache& cache, const float* angles, const HeadSums& sums) const {
  const std::int64_t num_rows = step.rows.num_rows;
  if (num_rows == 0) {
    return;
  }
  Activations& act = step.act;
  const auto sum_over_ranks = [&](AllReduce* all_reduce, const Buffer& buffer, std::int64_t elements) {
    if (all_reduce != nullptr) {
      (*all_reduce)({.input = buffer.data(), .output = buffer.data(), .num_elements = num_rows * elements},
                    step.stream);
    }
  };
  const bool in_parts = step.heads_in_parts();
  const bool out_in_parts = step.attention_in_parts();
  const auto* rest_of_heads =
      static_cast<const float*>(step.rest_of(act.heads, heads_.outputs, DataType::float32, in_parts));
  step.kernels.normalise({.x = act.x.as<float>(),
                          .delta = nullptr,
                          .delta_rest = nullptr,
                          .row_of = nullptr,
                          .weight = input_norm_.data(),
                          .output = act.normalised.data(),
                          .rest = step.rest_of(act.normalised, hidden_, step.type, in_parts),
                          .in_bf16 = nullptr,
                          .num_rows = num_rows},
                         step.stream);
  step.products.dense(heads_, act.normalised.data(), step.rows_of_product(in_parts), act.heads.data(),
                      DataType::float32, step.stream);
  if (norm_ == QkNorm::all_heads) {
    step.kernels.sum_head_squares({.heads = act.heads.as<float>(),
                                   .rest = rest_of_heads,
                                   .squares = act.squares.as<float>(),
                                   .num_rows = num_rows},
                                  step.stream);
    sum_over_ranks(sums.squares, act.squares, 2);
  }
  step.kernels.prepare_heads({.heads = act.heads.as<float>(),
                              .rest = rest_of_heads,
                              .query_weight = query_norm_.data(),
                              .key_weight = key_norm_.data(),
                              .squares = act.squares.as<float>(),
                              .angles = angles,
                              .keys = cache.keys,
                              .values = cache.values,
                              .rows = step.rows},
                             step.stream);
  step.kernels.attend({.heads = act.heads.as<float>(),
                       .keys = cache.keys,
                       .values = cache.values,
                       .output = act.attention.data(),
                       .rest = step.rest_of(act.attention, projection_.inputs, step.type, out_in_parts),
                       .scale = scale_,
                       .rows = step.rows},
                      step.stream);
  step.products.dense(projection_, act.attention.data(), step.rows_of_product(out_in_parts), act.block.data(),
                      step.block_type, step.stream);
  sum_over_ranks(sums.blocks, act.block, hidden_);
}

}  // namespace moelink::engine

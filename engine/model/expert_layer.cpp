#include "engine/model/expert_layer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/base/text.hpp"
#include "engine/model/kernels.hpp"
#include "moelink/device/primitives/minifloat.cuh"

namespace moelink::engine {
namespace {

/// What architectures call their parts.
struct ExpertNames {
  std::string block;
  std::string gate;
  std::string up;
  std::string down;
};

ExpertNames names_of(Architecture architecture) {
  if (architecture == Architecture::mixtral) {
    return {.block = "block_sparse_moe.", .gate = "w1", .up = "w3", .down = "w2"};
  }
  return {.block = "mlp.", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};
}

}  // namespace

ExpertLayer::ExpertLayer(WeightLoader& loader, const ModelConfig& config, const Shard& shard, std::int64_t layer)
    : hidden_(config.hidden), intermediate_(config.expert_intermediate) {
  const std::string prefix = text("model.layers.", layer, '.');
  const ExpertNames names = names_of(config.architecture);
  const auto whole = [](std::string name, std::int64_t rows, std::int64_t columns) {
    return MatrixSlice{
        .name = std::move(name), .num_rows = rows, .num_columns = columns, .rows = {0, rows}, .columns = {0, columns}};
  };
  norm_ = loader.vector(prefix + "post_attention_layernorm.weight", hidden_, {0, hidden_});
  // The largest that a normalised element can be is sqrt(hidden) times its weight: with it a block's scale is the
  // largest e4m3 has, so that none is too large and small ones keep their bits.
  constexpr float kLargest = kLargestE4m3 * kLargestE2m1;
  const float most =
      std::sqrt(static_cast<float>(hidden_)) * loader.largest(prefix + "post_attention_layernorm.weight", hidden_);
  tensor_scale_ = loader.floats(std::array{std::max(most / kLargest, std::numeric_limits<float>::min())});
  router_ = loader.load({whole(prefix + names.block + "gate.weight", config.num_experts, hidden_)});
  gate_up_ = loader.allocate(shard.experts.size(), 2 * intermediate_, hidden_);
  down_ = loader.allocate(shard.experts.size(), hidden_, intermediate_);
  for (std::int64_t e = 0; e < shard.experts.size(); ++e) {
    const std::string expert = text(prefix, names.block, "experts.", shard.experts.begin + e, '.');
    loader.fill(gate_up_, e,
                {whole(expert + names.gate + ".weight", intermediate_, hidden_),
                 whole(expert + names.up + ".weight", intermediate_, hidden_)});
    loader.fill(down_, e, {whole(expert + names.down + ".weight", hidden_, intermediate_)});
  }
}

void ExpertLayer::prepare(Products& products) const {
  products.prepare(gate_up_);
  products.prepare(down_);
}

void ExpertLayer::route(const Step& step, std::int32_t* expert_ids) const {
  Activations& act = step.act;
  const bool in_parts = step.router_in_parts();
  const auto* rest_of_block =
      static_cast<const float*>(step.rest_of(act.block, hidden_, DataType::float32, step.attention_in_parts()));
  step.kernels.add_and_normalise({.x = act.x.as<float>(),
                                  .delta = act.block.data(),
                                  .delta_rest = rest_of_block,
                                  .row_of = nullptr,
                                  .weight = norm_.data(),
                                  .output = act.normalised.data(),
                                  .rest = step.rest_of(act.normalised, hidden_, step.type, in_parts),
                                  .in_bf16 = act.sent.data(),
                                  .num_rows = step.rows.num_rows},
                                 step.stream);
  step.products.dense(router_, act.normalised.data(), step.rows_of_product(in_parts), act.router.data(),
                      DataType::float32, step.stream);
  step.kernels.route(
      {.logits = act.router.as<float>(),
       .rest = static_cast<const float*>(step.rest_of(act.router, router_.outputs, DataType::float32, in_parts)),
       .sequences = step.rows.sequences,
       .expert_ids = expert_ids,
       .weights = act.weights.as<float>(),
       .num_rows = step.rows.num_rows},
      step.stream);
}

void ExpertLayer::compute(const Step& step, const ExpertBatch& batch, const RowGroups& groups, void* output) const {
  Activations& act = step.act;
  const void* input = step.payload == Quantization::none ? batch.rows.data : act.expert_in.data();
  step.products.grouped(gate_up_, groups, input, act.gate_up.data(), step.stream);
  step.kernels.swiglu(
      {.gate_up = act.gate_up.data(), .output = act.gated.data(), .num_rows = batch.offsets + batch.num_local_experts},
      batch.capacity, step.stream);
  step.products.grouped(down_, groups, act.gated.data(), output, step.stream);
}

ExpertBatch ExpertLayer::dispatch(const Step& step, Exchange& exchange, const std::int32_t* expert_ids) const {
  Activations& act = step.act;
  const bool quantizes = step.payload != Quantization::none;
  const bool rounds = quantizes && step.type == DataType::float32;
  ExpertBatch batch = exchange.dispatch({.tokens = {.data = rounds ? act.sent.data() : act.normalised.data(),
                                                    .type = rounds ? DataType::bfloat16 : step.type,
                                                    .rows = step.rows.num_rows,
                                                    .columns = hidden_},
                                         .expert_ids = {.data = expert_ids},
                                         .weights = act.weights.as<float>(),
                                         .quantize = step.payload,
                                         .tensor_scale = tensor_scale_.as<float>()},
                                        step.stream);
  if (quantizes) {
    step.kernels.dequantize({.rows = batch.rows.data,
                             .scales = batch.scales.data,
                             .scale_stride_bytes = batch.scales.stride_bytes(),
                             .tensor_scale = tensor_scale_.as<float>(),
                             .output = act.expert_in.data(),
                             .num_rows = batch.offsets + batch.num_local_experts},
                            batch.capacity, step.stream);
  }
  return batch;
}

void ExpertLayer::run(const Step& step, Exchange& exchange, std::int32_t* expert_ids, ExchangeTimer& timer) const {
  if (step.rows.num_rows > 0) {
    route(step, expert_ids);
  }
  Activations& act = step.act;
  timer.begin_dispatch(step.stream);
  const ExpertBatch batch = dispatch(step, exchange, expert_ids);
  timer.end_dispatch(step.stream);
  const MutableMatrixView output = exchange.expert_output_buffer(step.type);
  RowGroups groups{.offsets = batch.offsets, .counts = batch.counts};
  if (step.counts_on_host) {
    if (step.wait_before_copies) {
      step.stream.synchronize();
    }
    groups.host_counts = exchange.host_counts(step.stream);
    step.stream.synchronize();
  }
  compute(step, batch, groups, output.data);
  timer.begin_combine(step.stream);
  exchange.combine(
      {.expert_output = output,
       .output = {.data = act.x.data(), .type = DataType::float32, .rows = step.rows.num_rows, .columns = hidden_},
       .accumulate = true},
      step.stream);
  timer.end_combine(step.stream);
}

}  // namespace moelink::engine

#include "engine/model/model.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/base/text.hpp"
#include "engine/files/weight_files.hpp"
#include "engine/math/products.hpp"
#include "engine/model/attention_layer.hpp"
#include "engine/model/expert_layer.hpp"
#include "engine/model/kernels.hpp"
#include "engine/model/shard.hpp"
#include "engine/model/step.hpp"
#include "engine/model/step_inputs.hpp"
#include "engine/model/weight_loader.hpp"
#include "engine/model/weight_names.hpp"
#include "moelink/all_reduce.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

void check_limit(const char* name, std::int64_t value, std::int64_t largest) {
  if (value < 1 || value > largest) {
    throw Error(ErrorCode::invalid_argument, text("ModelLimits: ", name, " is ", value, "; expected 1 to ", largest));
  }
}

ModelLimits completed(ModelLimits limits, const ModelConfig& config) {
  check_limit("max_rows", limits.max_rows, 1 << 20);
  check_limit("max_logit_rows", limits.max_logit_rows, limits.max_rows);
  if (limits.max_decode_rows < 0) {
    throw Error(ErrorCode::invalid_argument,
                text("ModelLimits: max_decode_rows is ", limits.max_decode_rows, "; expected 0 or more"));
  }
  check_limit("max_sequences", limits.max_sequences, 1 << 20);
  check_limit("page_size", limits.page_size, 1 << 16);
  check_limit("num_pages", limits.num_pages, 1 << 28);
  const std::int64_t longest = std::min(config.max_positions, limits.num_pages * limits.page_size);
  if (limits.max_positions == 0) {
    limits.max_positions = longest;
  }
  check_limit("max_positions", limits.max_positions, longest);
  return limits;
}

ExchangeConfig exchange_config(const ModelConfig& config, const ModelOptions& options, int num_ranks) {
  if (options.parallelism == Parallelism::data && options.mode == Mode::tensor_parallel && num_ranks > 1) {
    throw Error(ErrorCode::invalid_argument,
                text("ModelOptions: mode tensor_parallel takes the same rows of every rank, and with Parallelism::data ",
                     "each of ", num_ranks, " has its own; leave the mode to `automatic`"));
  }
  const bool sends_parts = options.parallelism == Parallelism::data && num_ranks > 1;  // of sums, to other ranks
  return {.mode = options.mode,
          .replicated_inputs = options.parallelism == Parallelism::tensor,
          .fp32_partials = sends_parts && options.type != DataType::float32,
          .num_experts = config.num_experts,
          .top_k = config.top_k,
          .hidden = config.hidden,
          .max_tokens = options.limits.max_rows,
          .payloads = {Payload{.type = options.payload == Quantization::none ? options.type : DataType::bfloat16,
                               .quantize = options.payload}},
          .combine_types = {CombineTypes{.expert_output = options.type, .output = DataType::float32}},
          .own_expert_output = true};
}

HeadShare head_share(const Communicator& communicator, const ModelOptions& options) {
  if (options.parallelism == Parallelism::data) {
    return {};
  }
  return {.rank = communicator.rank(), .size = communicator.size()};
}

/// Whether another rank of this process has the same GPU.
bool shares_device_of(const Communicator& communicator) {
  const Topology& topology = communicator.topology();
  for (int other = 0; other < communicator.size(); ++other) {
    if (other != communicator.rank() && topology.same_process(communicator.rank(), other) &&
        topology.link(communicator.rank(), other) == Link::same_device) {
      return true;
    }
  }
  return false;
}

Range local_experts(const Communicator& communicator, std::int64_t num_experts) {
  const auto first = [&](std::int64_t rank) { return num_experts * rank / communicator.size(); };
  return {first(communicator.rank()), first(communicator.rank() + 1)};
}

/// Cosines and sines of every position, in fp32, as the models were trained with.
std::vector<float> rotary_angles(const ModelConfig& config, std::int64_t num_positions) {
  const std::int64_t half = config.head_dim / 2;
  std::vector<float> angles(static_cast<std::size_t>(num_positions * config.head_dim));
  for (std::int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    const float frequency = 1.0F / std::pow(static_cast<float>(config.rope_theta), exponent);
    for (std::int64_t position = 0; position < num_positions; ++position) {
      const float angle = static_cast<float>(position) * frequency;
      const auto at = static_cast<std::size_t>(position * config.head_dim + i);
      angles[at] = std::cos(angle);
      angles[at + static_cast<std::size_t>(half)] = std::sin(angle);
    }
  }
  return angles;
}

}  // namespace

struct Model::Impl {
  Impl(const Communicator& comm, const ModelConfig& model_config, const WeightSource& weights,
       const ModelOptions& model_options);

  void allocate();
  void load_weights(const WeightSource& weights);
  void run(const StepShape& shape, StreamView stream);
  void finish(const Step& step, std::int64_t num_logit_rows);
  /// Of what attention gives: all that is known, or what is cheap to sum over ranks.
  [[nodiscard]] DataType block_type() const {
    return head_share(communicator, options).size > 1 ? options.type : DataType::float32;
  }
  [[nodiscard]] AttentionLayer::Cache cache_of(std::size_t layer) const;
  [[nodiscard]] std::int32_t* expert_ids_of(std::int64_t layer) const;

  Communicator communicator;
  Device device;
  bool shares_device;
  ModelConfig config;
  ModelOptions options;
  Shard shard;
  std::unique_ptr<Products> products;
  ModelKernels kernels;
  Exchange exchange;
  std::optional<AllReduce> block_sums;
  std::optional<AllReduce> square_sums;
  StepInputs inputs;
  ExchangeTimer timer;
  Activations act;
  Buffer angles;
  Buffer cache;  ///< by layer: keys, values

  struct Layer {
    AttentionLayer attention;
    ExpertLayer experts;
  };
  Buffer embedding;
  std::vector<Layer> layers;
  Buffer final_norm;
  Weights head;
  StepShape loaded;
};

Model::Impl::Impl(const Communicator& comm, const ModelConfig& model_config, const WeightSource& weights,
                  const ModelOptions& model_options)
    : communicator(comm),
      device(comm.device()),
      shares_device(shares_device_of(comm)),
      config(model_config),
      options([&] {
        ModelOptions complete = model_options;
        complete.limits = completed(model_options.limits, config);
        return complete;
      }()),
      shard(shard_of(config, head_share(comm, options), local_experts(comm, config.num_experts))),
      products(Products::make(device, options.type)),
      kernels(device, config, shard, {options.type, block_type(), options.payload}, options.limits.page_size),
      exchange(comm, exchange_config(config, options, comm.size())),
      inputs(device, config, options.limits),
      timer(device, options.time_exchange ? config.num_layers : 0) {
  if (head_share(comm, options).size > 1) {
    const std::int64_t rows = options.limits.max_rows;
    block_sums.emplace(comm, AllReduceConfig{.type = block_type(), .max_elements = rows * config.hidden});
    if (config.qk_norm == QkNorm::all_heads) {
      square_sums.emplace(comm, AllReduceConfig{.type = DataType::float32, .max_elements = rows * 2});
    }
  }
  allocate();
  load_weights(weights);
}

void Model::Impl::allocate() {
  const auto element = static_cast<std::int64_t>(size_of(options.type));
  const auto buffer = [&](std::int64_t elements, std::int64_t element_bytes) {
    return Buffer(device, static_cast<std::size_t>(elements * element_bytes));
  };
  const std::int64_t rows = options.limits.max_rows;
  const std::int64_t logit_rows = options.limits.max_logit_rows;
  const std::int64_t heads = shard.heads.size() * config.head_dim;
  // NOTE [parts] in step.hpp.
  const std::int64_t parts = options.type == DataType::float32 ? 1 : 2;
  const std::int64_t rows_in_parts = std::max(rows, parts * std::min(rows, options.limits.max_decode_rows));
  const std::int64_t expert_rows = exchange.expert_output_buffer(options.type).rows;
  const bool quantizes = options.payload != Quantization::none;
  act = {
      .x = buffer(rows * config.hidden, sizeof(float)),
      .normalised = buffer(parts * rows * config.hidden, element),
      .heads = buffer(rows_in_parts * (heads + 2 * shard.kv_heads.size() * config.head_dim), sizeof(float)),
      .squares = buffer(rows * 2, sizeof(float)),
      .attention = buffer(rows_in_parts * heads, element),
      .block = buffer(rows_in_parts * config.hidden, static_cast<std::int64_t>(size_of(block_type()))),
      .router = buffer(parts * rows * config.num_experts, sizeof(float)),
      .expert_ids = buffer(rows * config.top_k * (options.keep_routing ? config.num_layers : 1), sizeof(std::int32_t)),
      .weights = buffer(rows * config.top_k, sizeof(float)),
      .sent = buffer(quantizes && options.type == DataType::float32 ? rows * config.hidden : 0, sizeof(std::uint16_t)),
      .expert_in = buffer(quantizes ? expert_rows * config.hidden : 0, element),
      .gate_up = buffer(expert_rows * 2 * config.expert_intermediate, element),
      .gated = buffer(expert_rows * config.expert_intermediate, element),
      .last = buffer(logit_rows * config.hidden, element),
      .logits = buffer(logit_rows * config.vocab_size, sizeof(float))};
  const std::int64_t page_elements = shard.kv_heads.size() * options.limits.page_size * config.head_dim;
  cache = buffer(config.num_layers * 2 * options.limits.num_pages * page_elements, element);
  // What was never written can be attended to in a measurement, and must be a number there.
  const Stream stream(device);
  fill_bytes(cache.data(), 0, cache.size_bytes(), stream);
  stream.synchronize();
}

void Model::Impl::load_weights(const WeightSource& weights) {
  WeightLoader loader(weights, *products, device, options.type);
  const auto report = [&](std::int64_t done) {
    if (options.progress) {
      options.progress(static_cast<double>(done) / static_cast<double>(config.num_layers + 1));
    }
  };
  embedding = loader.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden);
  final_norm = loader.vector("model.norm.weight", config.hidden, {0, config.hidden});
  head = loader.load({{.name = config.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
                       .num_rows = config.vocab_size,
                       .num_columns = config.hidden,
                       .rows = {0, config.vocab_size},
                       .columns = {0, config.hidden}}});
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    report(layer);
    layers.push_back({AttentionLayer(loader, config, shard, layer), ExpertLayer(loader, config, shard, layer)});
    layers.back().experts.prepare(*products);
  }
  const std::vector<float> table = rotary_angles(config, options.limits.max_positions);
  angles = Buffer(device, table.size() * sizeof(float));
  const Stream stream(device);
  copy_bytes(angles.data(), table.data(), angles.size_bytes(), stream);
  stream.synchronize();
  report(config.num_layers + 1);
}

AttentionLayer::Cache Model::Impl::cache_of(std::size_t layer) const {
  const std::size_t part = cache.size_bytes() / (2 * static_cast<std::size_t>(config.num_layers));
  auto* keys = cache.as<std::byte>() + 2 * layer * part;
  return {.keys = keys, .values = keys + part};
}

std::int32_t* Model::Impl::expert_ids_of(std::int64_t layer) const {
  const std::int64_t stride = options.keep_routing ? options.limits.max_rows * config.top_k : 0;
  return act.expert_ids.as<std::int32_t>() + layer * stride;
}

void Model::Impl::run(const StepShape& shape, StreamView stream) {
  if (shape != loaded) {
    throw Error(ErrorCode::invalid_argument,
                text("a step of ", shape.num_rows, " rows and ", shape.num_logit_rows, " logits was asked for, but ",
                     loaded.num_rows, " and ", loaded.num_logit_rows, " were loaded"));
  }
  const Step step{.rows = inputs.rows(shape.num_rows),
                  .act = act,
                  .kernels = kernels,
                  .products = *products,
                  .type = options.type,
                  .payload = options.payload,
                  .block_type = block_type(),
                  .few_rows = shape.num_rows <= options.limits.max_decode_rows,
                  .counts_on_host = !device.is_host() && shape.num_rows > options.limits.max_decode_rows,
                  .wait_before_copies = shares_device,
                  .stream = stream};
  timer.begin_step();
  if (shape.num_rows > 0) {
    kernels.embed(
        {.tokens = inputs.tokens(), .table = embedding.data(), .output = act.x.as<float>(), .num_rows = shape.num_rows},
        stream);
  }
  const HeadSums sums{.blocks = block_sums ? &*block_sums : nullptr, .squares = square_sums ? &*square_sums : nullptr};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].attention.run(step, cache_of(i), angles.as<float>(), sums);
    layers[i].experts.run(step, exchange, expert_ids_of(static_cast<std::int64_t>(i)), timer);
  }
  if (shape.num_logit_rows > 0) {
    finish(step, shape.num_logit_rows);
  }
}

void Model::Impl::finish(const Step& step, std::int64_t num_logit_rows) {
  kernels.normalise({.x = act.x.as<float>(),
                     .delta = nullptr,
                     .delta_rest = nullptr,
                     .row_of = inputs.logit_rows(),
                     .weight = final_norm.data(),
                     .output = act.last.data(),
                     .rest = nullptr,
                     .in_bf16 = nullptr,
                     .num_rows = num_logit_rows},
                    step.stream);
  products->dense(head, act.last.data(), num_logit_rows, act.logits.data(), DataType::float32, step.stream);
}

Model::Model(const Communicator& communicator, const std::filesystem::path& folder, const ModelOptions& options)
    : impl_([&] {
        const ModelConfig config = read_model_config(folder);
        const WeightFiles weights(folder);
        refuse_unknown_tensors(config, weights.names(), weights.folder());
        return std::make_unique<Impl>(communicator, config, weights, options);
      }()) {}
Model::Model(const Communicator& communicator, const ModelConfig& config, const WeightSource& weights,
             const ModelOptions& options)
    : impl_(std::make_unique<Impl>(communicator, config, weights, options)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelConfig& Model::config() const noexcept { return impl_->config; }
const ModelLimits& Model::limits() const noexcept { return impl_->options.limits; }

void Model::load(const Batch& batch, StreamView stream) {
  impl_->inputs.load(batch, stream);
  impl_->loaded = shape_of(batch);
}

void Model::run(const StepShape& shape, StreamView stream) { impl_->run(shape, stream); }

MatrixView Model::logits() const {
  return {.data = impl_->act.logits.data(),
          .type = DataType::float32,
          .rows = impl_->options.limits.max_logit_rows,
          .columns = impl_->config.vocab_size};
}

void Model::copy_logits(std::span<float> destination, StreamView stream) const {
  if (destination.empty()) {
    return;
  }
  if (impl_->shares_device) {
    stream.synchronize();
  }
  copy_bytes(destination.data(), logits().data, destination.size_bytes(), stream);
}

const std::int32_t* Model::expert_ids(std::int64_t layer) const {
  if (!impl_->options.keep_routing || layer < 0 || layer >= impl_->config.num_layers) {
    throw Error(ErrorCode::invalid_argument,
                text("the routing of layer ", layer, " is not kept: expected a layer below ", impl_->config.num_layers,
                     " and ModelOptions::keep_routing"));
  }
  return impl_->expert_ids_of(layer);
}

Model::ExchangeTime Model::exchange_time() const {
  return {.dispatch_us = impl_->timer.dispatch_us(), .combine_us = impl_->timer.combine_us()};
}

void Model::time_exchange(bool wanted) { impl_->timer.enable(wanted); }

void Model::check() {
  impl_->exchange.check();
  for (std::optional<AllReduce>* sums : {&impl_->block_sums, &impl_->square_sums}) {
    if (*sums) {
      (*sums)->check();
    }
  }
}

std::int64_t Model::page_bytes() const noexcept {
  return static_cast<std::int64_t>(impl_->cache.size_bytes()) / impl_->options.limits.num_pages;
}

}  // namespace moelink::engine

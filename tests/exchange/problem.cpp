#include "exchange/problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace moelink::test {
namespace {

Bytes random_bytes(std::int64_t count, std::mt19937& random) {
  Bytes bytes(static_cast<std::size_t>(count));
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

Bytes random_elements(DataType type, std::int64_t count, std::mt19937& random) {
  Bytes bytes(static_cast<std::size_t>(count) * size_of(type));
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < count; ++i) reference::store(bytes.data(), type, i, normal(random));
  return bytes;
}

/// A type that stands for opaque rows when something is computed from them.
DataType computable(DataType type) { return type == DataType::bytes ? DataType::bfloat16 : type; }

/// What "the experts" do to an element: different for each of them, and finite for every finite element.
float expert_transform(float value, std::int32_t expert, std::int64_t column) {
  const float bounded = std::isfinite(value) ? std::fmod(value, 1024.0F) : 1.0F;
  return bounded * (0.5F + 0.03125F * static_cast<float>(expert % 97)) + static_cast<float>(column % 3);
}

std::int64_t capacity_of(const Shape& shape) {
  if (shape.capacity >= 0) return shape.capacity;
  const std::int64_t entries = shape.num_tokens * shape.top_k;
  if (shape.layout == Layout::batched) return std::max<std::int64_t>(entries, 1);
  const std::int64_t padded = entries + std::min(shape.num_experts, entries) * (shape.alignment - 1);
  return std::max<std::int64_t>((padded + shape.alignment - 1) / shape.alignment * shape.alignment, shape.alignment);
}

reference::Routing route(const Problem& problem) {
  const Shape& shape = problem.shape;
  const std::int64_t live = problem.num_live_tokens();
  const auto first = problem.ids.begin();
  return reference::route({.num_experts = shape.num_experts,
                           .top_k = shape.top_k,
                           .num_tokens = live,
                           .ids = {first, first + live * shape.top_k},
                           .weights = shape.weight_mode == WeightMode::none ? std::vector<float>{} : problem.weights,
                           .layout = shape.layout,
                           .alignment = shape.alignment,
                           .capacity = capacity_of(shape)});
}

}  // namespace

ExchangeConfig config_for(const Shape& shape) {
  ExchangeConfig config{.num_experts = shape.num_experts,
                        .top_k = shape.top_k,
                        .hidden = shape.hidden,
                        .max_tokens = std::max<std::int64_t>(shape.num_tokens, 1)};
  if (shape.layout == Layout::packed) {
    config.max_alignment = shape.alignment;
    config.max_rows = capacity_of(shape);
  } else {
    config.max_rows = 0;
    config.max_rows_per_expert = capacity_of(shape);
  }
  config.payloads = {shape.payload};
  config.combine_types = {shape.combine};
  config.weights_on_input = shape.weight_mode == WeightMode::on_input;
  config.own_rows = !shape.caller_rows;
  config.own_expert_output = shape.extra_stride_bytes == 0;
  return config;
}

std::vector<std::int64_t> draw_ids(const Shape& shape, Routing routing) {
  std::mt19937 random(shape.seed);
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> experts(static_cast<std::size_t>(shape.num_experts));
  std::iota(experts.begin(), experts.end(), 0);
  std::vector<double> popularity;
  for (std::int64_t e = 0; e < shape.num_experts; ++e) popularity.push_back(1.0 / static_cast<double>(e + 1));
  std::discrete_distribution<std::int64_t> zipf(popularity.begin(), popularity.end());
  const std::int64_t no_experts[] = {shape.num_experts, -2, std::numeric_limits<std::int32_t>::max(),
                                     std::numeric_limits<std::int32_t>::min(),
                                     // The low 32 bits of these look valid.
                                     std::int64_t{1} << 32, (std::int64_t{-3} << 32) + 1};
  const std::size_t num_no_experts = shape.index == IndexType::int64 ? std::size(no_experts) : 4;
  for (std::int64_t token = 0; token < shape.num_tokens; ++token) {
    std::shuffle(experts.begin(), experts.end(), random);
    for (int k = 0; k < shape.top_k; ++k) {
      const std::int64_t any = experts[random() % experts.size()];
      const std::int64_t distinct = experts[static_cast<std::size_t>(k) % experts.size()];
      switch (routing) {
        case Routing::uniform:
          ids.push_back(distinct);
          break;
        case Routing::duplicates:
          ids.push_back(k % 2 == 1 ? ids.back() : any);
          break;
        case Routing::one_expert:
          ids.push_back(shape.num_experts * 7 / 8);
          break;
        case Routing::zipf:
          ids.push_back(zipf(random));
          break;
        case Routing::holes:
          ids.push_back(random() % 3 == 0 ? -1 : distinct);
          break;
        case Routing::garbage:
          ids.push_back(random() % 3 == 0 ? no_experts[random() % num_no_experts] : distinct);
          break;
      }
    }
  }
  return ids;
}

Problem::Problem(const Shape& shape_in, std::vector<std::int64_t> ids_in) : shape(shape_in), ids(std::move(ids_in)) {
  std::mt19937 random(shape.seed + 1000);
  std::uniform_real_distribution<float> uniform(0.01F, 1.0F);
  for (std::size_t i = 0; i < ids.size(); ++i) weights.push_back(uniform(random));
  tokens = shape.payload.type == DataType::bytes
               ? random_bytes(shape.num_tokens * shape.payload.row_bytes, random)
               : random_elements(shape.payload.type, shape.num_tokens * shape.hidden, random);
  scales = random_bytes(shape.num_tokens * shape.payload.scale_bytes, random);
  prior_output = random_elements(shape.combine.output, shape.num_tokens * shape.hidden, random);
  shared = random_elements(shape.combine.expert_output, shape.num_tokens * shape.hidden, random);
}

std::int64_t Problem::row_bytes() const {
  return shape.payload.type == DataType::bytes ? shape.payload.row_bytes
                                               : shape.hidden * static_cast<std::int64_t>(size_of(shape.payload.type));
}

std::int64_t Problem::num_live_tokens() const {
  if (shape.device_num_tokens == Shape::kNoCount) return shape.num_tokens;
  return std::clamp<std::int64_t>(shape.device_num_tokens, 0, shape.num_tokens);
}

Expected::Expected(const Problem& problem) : routing(route(problem)), output(problem.prior_output) {
  const Shape& shape = problem.shape;
  const std::int64_t row_bytes = problem.row_bytes();
  rows = reference::dispatch_rows(routing, shape.top_k, problem.tokens.data(), row_bytes);
  scales = reference::dispatch_rows(routing, shape.top_k, problem.scales.data(), shape.payload.scale_bytes);
  if (shape.weight_mode == WeightMode::on_input) {
    reference::weight_rows(routing, rows.data(), shape.payload.type, shape.hidden);
  }

  const DataType type = shape.combine.expert_output;
  const DataType from = computable(shape.payload.type);
  const std::int64_t elements = row_bytes / static_cast<std::int64_t>(size_of(from));
  expert_output.resize(routing.expert_of_row.size() * static_cast<std::size_t>(shape.hidden) * size_of(type));
  for (std::size_t row = 0; row < routing.expert_of_row.size(); ++row) {
    const std::int32_t expert = routing.expert_of_row[row];
    for (std::int64_t column = 0; column < shape.hidden; ++column) {
      const auto i = static_cast<std::int64_t>(row);
      const float value =
          expert < 0
              ? std::numeric_limits<float>::quiet_NaN()
              : expert_transform(reference::load(rows.data(), from, i * elements + column % elements), expert, column);
      reference::store(expert_output.data(), type, i * shape.hidden + column, value);
    }
  }
  reference::combine({.top_k = shape.top_k,
                      .num_tokens = problem.num_live_tokens(),
                      .hidden = shape.hidden,
                      .expert_output = expert_output.data(),
                      .expert_output_type = type,
                      .output_type = shape.combine.output,
                      .weights = shape.weight_mode == WeightMode::on_combine ? problem.weights : std::vector<float>{},
                      .shared = shape.shared ? problem.shared.data() : nullptr,
                      .accumulate = shape.accumulate},
                     routing, output.data());
}

}  // namespace moelink::test

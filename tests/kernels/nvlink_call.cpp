// Calls of the nvlink mode at random: ids, tokens and what else is passed.
#include <algorithm>

#include "kernels/nvlink_case.hpp"

namespace moelink::test {
namespace {

std::int64_t random_id(const reference::RanksInput& in, Routes routes, std::mt19937_64& random) {
  const auto any = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(in.num_experts));
  switch (routes) {
    case Routes::uniform:
      return random() % 8 == 0 ? -1 : any;
    case Routes::one_expert:
      return in.num_experts / 2;
    case Routes::one_rank:
      return any % std::max<std::int64_t>(in.num_experts / in.num_ranks, 1);
    case Routes::few:
      return random() % 4 == 0 ? any : -1;
    case Routes::unused:
      return -1;
    case Routes::with_bad_ids:
      if (random() % 8 == 0) return in.num_experts + static_cast<std::int64_t>(random() % 3);
      if (random() % 8 == 0) return -2 - static_cast<std::int64_t>(random() % 3);
      return any;
  }
  return -1;
}

/// Logical experts in one to `max_replicas` places; one of them nowhere, one in a place that does not exist.
std::vector<std::int32_t> random_map(const reference::RanksInput& in, std::mt19937_64& random) {
  std::vector<std::int32_t> map(in.num_experts * in.max_replicas, -1);
  for (std::int64_t expert = 0; expert < in.num_experts; ++expert) {
    const std::int64_t replicas = 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(in.max_replicas));
    for (std::int64_t i = 0; i < replicas; ++i) {
      map[expert * in.max_replicas + i] = static_cast<std::int32_t>(random() % in.num_physical_experts);
    }
  }
  if (in.num_experts > 2) {
    map[in.max_replicas] = -1;
    map[2 * in.max_replicas] = static_cast<std::int32_t>(in.num_physical_experts);
  }
  return map;
}

std::int64_t worst_capacity(const NvlinkConfig& config, const CallOptions& options) {
  const std::int64_t entries = config.num_groups() * config.max_tokens * config.top_k;
  if (options.layout == Layout::batched) return entries;
  const std::int64_t experts = (config.num_experts + config.num_ranks - 1) / config.num_ranks;
  const std::int64_t rows = entries + std::min(experts, entries) * (options.alignment - 1);
  return (rows + options.alignment - 1) / options.alignment * options.alignment;
}

/// Random bytes, or values if they will be multiplied.
std::vector<unsigned char> random_rows(const NvlinkConfig& config, std::int64_t num_tokens, std::mt19937_64& random) {
  std::vector<unsigned char> rows(num_tokens * config.row_bytes);
  if (config.on_input == Element::none) {
    for (auto& byte : rows) byte = static_cast<unsigned char>(random());
    return rows;
  }
  std::normal_distribution<float> normal;
  const std::int64_t count = num_tokens * config.row_bytes / bytes_of(config.on_input);
  for (std::int64_t i = 0; i < count; ++i) {
    reference::store(rows.data(), type_of(config.on_input), i, normal(random));
  }
  return rows;
}

reference::SourceInput random_source(const reference::RanksInput& in, const CallOptions& options, int source,
                                     std::mt19937_64& random) {
  reference::SourceInput from;
  from.num_tokens = options.tokens_of_source.empty()
                        ? static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(in.max_tokens + 1))
                        : options.tokens_of_source[static_cast<std::size_t>(source)];
  std::normal_distribution<float> normal;
  for (std::int64_t entry = 0; entry < from.num_tokens * in.top_k; ++entry) {
    const bool repeats = entry % in.top_k != 0 && random() % 8 == 0;
    from.ids.push_back(repeats ? from.ids.back() : random_id(in, options.routes, random));
    if (options.weighted) from.weights.push_back(normal(random));
  }
  return from;
}

}  // namespace

DataType type_of(Element element) {
  return element == Element::float32   ? DataType::float32
         : element == Element::float16 ? DataType::float16
                                       : DataType::bfloat16;
}

NvlinkCall make_call(const NvlinkConfig& config, const CallOptions& options, unsigned seed) {
  std::mt19937_64 random(seed);
  NvlinkCall call{.id_bytes = options.id_bytes,
                  .zero_pads = options.zero_pads,
                  .device_count = options.device_count,
                  .row_gap_bytes = options.row_gap_bytes};
  call.in = {.num_ranks = config.num_ranks,
             .tp_size = config.tp_size,
             .num_experts = config.num_experts,
             .top_k = config.top_k,
             .max_tokens = config.max_tokens,
             .layout = options.layout,
             .alignment = options.layout == Layout::packed ? options.alignment : 1,
             .capacity = options.capacity >= 0 ? options.capacity : worst_capacity(config, options)};
  if (options.max_replicas != 0) {
    call.in.num_experts = std::max<std::int64_t>(config.num_experts / 2, 1);
    call.in.num_physical_experts = config.num_experts;
    call.in.max_replicas = options.max_replicas;
    call.in.expert_map = random_map(call.in, random);
  }
  for (int source = 0; source < config.num_groups(); ++source) {
    call.in.sources.push_back(random_source(call.in, options, source, random));
    call.tokens.push_back(random_rows(config, call.in.sources.back().num_tokens, random));
    call.scales.emplace_back(call.in.sources.back().num_tokens * config.scale_bytes);
    for (auto& byte : call.scales.back()) byte = static_cast<unsigned char>(random());
  }
  return call;
}

CallOptions random_options(const NvlinkConfig& config, unsigned seed) {
  std::mt19937_64 random(seed * 7919U + 1);
  CallOptions options;
  options.routes = static_cast<Routes>(random() % 6);
  options.layout = random() % 2 == 0 ? Layout::packed : Layout::batched;
  options.alignment = 1 << random() % 4;
  options.weighted = random() % 4 != 0;
  options.id_bytes = random() % 2 == 0 ? 4 : 8;
  options.zero_pads = random() % 4 == 0;
  options.device_count = random() % 4 == 0;
  options.row_gap_bytes = static_cast<std::int64_t>(random() % 2 * 16);
  if (random() % 4 == 0) options.max_replicas = 1 + static_cast<int>(random() % 3);
  if (random() % 4 == 0) {
    const std::int64_t most = options.layout == Layout::packed ? config.max_tokens * config.top_k : config.max_tokens;
    options.capacity = static_cast<std::int64_t>(random() % (most + 1)) / options.alignment * options.alignment;
  }
  for (int source = 0; source < config.num_groups(); ++source) {
    const bool none = random() % 4 == 0;
    options.tokens_of_source.push_back(none ? 0 : static_cast<std::int64_t>(random() % (config.max_tokens + 1)));
  }
  return options;
}

}  // namespace moelink::test

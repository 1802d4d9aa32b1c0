#include "perf/moe/local_twin.hpp"

namespace moelink::perf {

ExchangeConfig twin_config(const MoeSet& set, std::int64_t num_tokens) {
  const MoeCase& moe = set.moe();
  ExchangeConfig config = set.config();
  config.mode = Mode::local;
  config.replicated_inputs = false;
  config.tp_size = 1;
  config.tensor_parallel_sum = TensorParallelSum::automatic;
  config.deterministic = true;
  config.fp32_partials = false;
  config.transport = "";
  config.num_experts = std::max<std::int64_t>(moe.placement->num_experts_of(moe.plan->rank), 1);
  config.max_tokens = std::max<std::int64_t>(num_tokens, 1);
  return config;
}

ExchangeConfig packer_config(const MoeSet& set, std::int64_t num_tokens, std::int64_t num_rows) {
  ExchangeConfig config = twin_config(set, num_tokens);
  config.num_experts = set.moe().placement->num_ranks;
  config.top_k = most_ranks_of(set.moe());
  config.max_rows = std::max<std::int64_t>(num_rows, 1);
  config.max_rows_per_expert = 0;
  config.max_alignment = 1;
  config.weights_on_input = false;
  return config;
}

int most_ranks_of(const MoeCase& moe) { return std::min(moe.sources->top_k(), moe.placement->num_ranks); }

std::vector<std::int32_t> ranks_of_token(const MoeCase& moe, int source, std::int64_t token) {
  const Routing& routing = (*moe.sources)[source];
  std::vector<std::int32_t> ranks;
  for (std::int64_t entry = token * routing.top_k; entry < (token + 1) * routing.top_k; ++entry) {
    ranks.push_back(moe.placement->owner_of(routing.expert_ids[static_cast<std::size_t>(entry)]));
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::int32_t local_expert_of(const MoeCase& moe, int source, std::int64_t entry) {
  const std::int64_t first = moe.placement->first_expert(moe.plan->rank);
  const std::int64_t end = moe.placement->first_expert(moe.plan->rank + 1);
  const std::int64_t id = (*moe.sources)[source].expert_ids[static_cast<std::size_t>(entry)];
  return id >= first && id < end ? static_cast<std::int32_t>(id - first) : -1;
}

}  // namespace moelink::perf

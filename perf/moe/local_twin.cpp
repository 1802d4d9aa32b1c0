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
  config.num_experts = std::max<std::int64_t>(moe.placement->num_experts_of(moe.plan->rank), 1);
  config.max_tokens = std::max<std::int64_t>(num_tokens, 1);
  return config;
}

std::int32_t local_expert_of(const MoeCase& moe, int source, std::int64_t entry) {
  const std::int64_t first = moe.placement->first_expert(moe.plan->rank);
  const std::int64_t end = moe.placement->first_expert(moe.plan->rank + 1);
  const std::int64_t id = (*moe.sources)[source].expert_ids[static_cast<std::size_t>(entry)];
  return id >= first && id < end ? static_cast<std::int32_t>(id - first) : -1;
}

}  // namespace moelink::perf

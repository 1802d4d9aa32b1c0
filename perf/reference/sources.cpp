#include "perf/reference/sources.hpp"

#include <algorithm>

namespace moelink::perf {

int Placement::owner_of(std::int64_t expert) const noexcept {
  int rank = static_cast<int>(expert * num_ranks / num_experts);  // this one or the next
  while (expert >= first_expert(rank + 1)) ++rank;
  return rank;
}

std::int64_t Placement::physical_expert(int source, std::int64_t token, std::int64_t id) const noexcept {
  if (expert_map.empty()) return id;
  const std::int32_t* places = expert_map.data() + id * max_replicas;
  const std::int64_t count = std::find(places, places + max_replicas, -1) - places;
  return places[(source + token) % count];
}

Placement make_placement(int num_ranks, int ranks_per_source, std::int64_t num_experts, int replicas) {
  Placement placement{.num_ranks = num_ranks,
                      .ranks_per_source = ranks_per_source,
                      .num_experts = num_experts,
                      .max_replicas = replicas};
  if (replicas == 1) return placement;
  placement.expert_map.assign(static_cast<std::size_t>(num_experts * replicas), -1);
  std::int32_t next = 0;
  for (int replica = 0; replica < replicas; ++replica) {
    for (std::int64_t expert = 0; expert < num_experts; ++expert) {
      if (expert % replicas >= replica)
        placement.expert_map[static_cast<std::size_t>(expert * replicas + replica)] = next++;
    }
  }
  placement.num_experts = next;
  return placement;
}

Sources::Sources(std::vector<Routing> routings) : routings_(std::move(routings)), first_{0} {
  for (const Routing& routing : routings_) {
    first_.push_back(first_.back() + static_cast<std::int64_t>(routing.expert_ids.size()));
  }
}

Sources::Entry Sources::locate(std::int64_t entry) const noexcept {
  const auto next = std::upper_bound(first_.begin(), first_.end(), entry);
  const auto source = static_cast<int>(next - first_.begin()) - 1;
  return {source, entry - first_[static_cast<std::size_t>(source)]};
}

}  // namespace moelink::perf

#include "perf/reference/row_plan.hpp"

#include <algorithm>

namespace moelink::perf {
namespace {

bool has_expert(const Routing& routing, std::int64_t id) { return id >= 0 && id < routing.num_experts; }

std::vector<std::int64_t> entries_per_expert(const Routing& routing) {
  std::vector<std::int64_t> entries(static_cast<std::size_t>(routing.num_experts), 0);
  for (const std::int64_t id : routing.expert_ids) {
    if (has_expert(routing, id)) ++entries[static_cast<std::size_t>(id)];
  }
  return entries;
}

/// Gives each entry, in order, the next free row of its expert.
RowPlan place(const Routing& routing, std::vector<std::int64_t> offsets, std::int64_t most_per_expert) {
  RowPlan plan;
  plan.offsets = std::move(offsets);
  plan.counts.assign(static_cast<std::size_t>(routing.num_experts), 0);
  plan.entry_of_row.assign(static_cast<std::size_t>(plan.offsets.back()), -1);
  plan.expert_of_row.assign(static_cast<std::size_t>(plan.offsets.back()), -1);
  plan.row_of_entry.assign(routing.expert_ids.size(), -1);
  for (std::size_t entry = 0; entry < routing.expert_ids.size(); ++entry) {
    const std::int64_t id = routing.expert_ids[entry];
    if (!has_expert(routing, id)) {
      plan.out_of_range += id == -1 ? 0 : 1;
      continue;
    }
    const auto expert = static_cast<std::size_t>(id);
    if (plan.counts[expert] == most_per_expert) {
      ++plan.over_capacity;
      continue;
    }
    const std::int64_t row = plan.offsets[expert] + plan.counts[expert]++;
    plan.row_of_entry[entry] = row;
    plan.entry_of_row[static_cast<std::size_t>(row)] = static_cast<std::int64_t>(entry);
    plan.expert_of_row[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(id);
    ++plan.kept;
  }
  return plan;
}

}  // namespace

RowPlan plan_packed_rows(const Routing& routing, int alignment) {
  const std::vector<std::int64_t> entries = entries_per_expert(routing);
  std::vector<std::int64_t> offsets = {0};
  for (const std::int64_t count : entries) {
    offsets.push_back(offsets.back() + (count + alignment - 1) / alignment * alignment);
  }
  return place(routing, std::move(offsets), static_cast<std::int64_t>(routing.expert_ids.size()));
}

RowPlan plan_batched_rows(const Routing& routing, std::int64_t capacity) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t expert = 0; expert <= routing.num_experts; ++expert) {
    offsets.push_back(expert * capacity);
  }
  return place(routing, std::move(offsets), capacity);
}

std::int64_t fullest_expert(const Routing& routing) {
  const std::vector<std::int64_t> entries = entries_per_expert(routing);
  return entries.empty() ? 0 : *std::ranges::max_element(entries);
}

}  // namespace moelink::perf

#include "perf/reference/row_plan.hpp"

#include <algorithm>

namespace moelink::perf {
namespace {

constexpr std::int64_t kNoExpert = -1;

/// The physical expert that an entry goes to, or kNoExpert.
std::int64_t expert_of(const Sources& sources, const Placement& placement, int source, std::int64_t entry) {
  const Routing& routing = sources[source];
  const std::int64_t id = routing.expert_ids[static_cast<std::size_t>(entry)];
  return id >= 0 && id < routing.num_experts ? placement.physical_expert(source, entry / routing.top_k, id) : kNoExpert;
}

/// Calls `visit(source, entry, expert)` for all entries in their order.
template <class Visit>
void for_entries(const Sources& sources, const Placement& placement, Visit&& visit) {
  for (int source = 0; source < sources.size(); ++source) {
    const auto count = static_cast<std::int64_t>(sources[source].expert_ids.size());
    for (std::int64_t entry = 0; entry < count; ++entry) {
      visit(source, entry, expert_of(sources, placement, source, entry));
    }
  }
}

std::int64_t aligned(std::int64_t rows, int alignment) { return (rows + alignment - 1) / alignment * alignment; }

/// Gives each entry, in order, the next free row of its expert, whichever rank owns it; notes what concerns one rank.
class Placer {
 public:
  Placer(const Sources& sources, const Placement& placement, int rank, std::vector<std::int64_t> offsets,
         std::int64_t most_per_expert)
      : sources_(sources),
        placement_(placement),
        source_(placement.source_of(rank)),
        most_per_expert_(most_per_expert),
        taken_(static_cast<std::size_t>(placement.num_experts), 0) {
    plan_.rank = rank;
    plan_.offsets = std::move(offsets);
    const auto num_rows = static_cast<std::size_t>(plan_.offsets.back());
    plan_.counts.assign(plan_.offsets.size() - 1, 0);
    plan_.entry_of_row.assign(num_rows, -1);
    plan_.expert_of_row.assign(num_rows, -1);
    plan_.row_of_entry.assign(static_cast<std::size_t>(sources.num_entries()), -1);
    plan_.expert_of_entry.assign(sources[source_].expert_ids.size(), -1);
  }

  RowPlan place() {
    for_entries(sources_, placement_, [this](int source, std::int64_t entry, std::int64_t expert) {
      if (expert == kNoExpert) {
        const bool unused = sources_[source].expert_ids[static_cast<std::size_t>(entry)] == -1;
        plan_.out_of_range += source == source_ && !unused ? 1 : 0;
      } else {
        place(source, entry, expert);
      }
    });
    return std::move(plan_);
  }

 private:
  void place(int source, std::int64_t entry, std::int64_t expert) {
    const bool here = placement_.owner_of(expert) == plan_.rank;
    std::int64_t& taken = taken_[static_cast<std::size_t>(expert)];
    if (taken == most_per_expert_) {
      plan_.over_capacity += here ? 1 : 0;
      plan_.dropped_by_peers += !here && source == source_ ? 1 : 0;
      return;
    }
    if (source == source_) plan_.expert_of_entry[static_cast<std::size_t>(entry)] = static_cast<std::int32_t>(expert);
    if (here) keep(sources_.first_entry(source) + entry, expert - placement_.first_expert(plan_.rank), taken);
    ++taken;
  }

  void keep(std::int64_t entry, std::int64_t local_expert, std::int64_t place) {
    const std::int64_t row = plan_.offsets[static_cast<std::size_t>(local_expert)] + place;
    plan_.row_of_entry[static_cast<std::size_t>(entry)] = row;
    plan_.entry_of_row[static_cast<std::size_t>(row)] = entry;
    plan_.expert_of_row[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(local_expert);
    ++plan_.counts[static_cast<std::size_t>(local_expert)];
    ++plan_.kept;
  }

  const Sources& sources_;
  const Placement& placement_;
  const int source_;
  const std::int64_t most_per_expert_;
  std::vector<std::int64_t> taken_;
  RowPlan plan_;
};

}  // namespace

std::vector<std::int64_t> entries_per_expert(const Sources& sources, const Placement& placement) {
  std::vector<std::int64_t> entries(static_cast<std::size_t>(placement.num_experts), 0);
  for_entries(sources, placement, [&](int, std::int64_t, std::int64_t expert) {
    if (expert != kNoExpert) ++entries[static_cast<std::size_t>(expert)];
  });
  return entries;
}

RowPlan plan_packed_rows(const Sources& sources, const Placement& placement, int rank, int alignment) {
  const std::vector<std::int64_t> entries = entries_per_expert(sources, placement);
  std::vector<std::int64_t> offsets = {0};
  for (std::int64_t expert = placement.first_expert(rank); expert < placement.first_expert(rank + 1); ++expert) {
    offsets.push_back(offsets.back() + aligned(entries[static_cast<std::size_t>(expert)], alignment));
  }
  return Placer(sources, placement, rank, std::move(offsets), sources.num_entries()).place();
}

RowPlan plan_batched_rows(const Sources& sources, const Placement& placement, int rank, std::int64_t capacity) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t expert = 0; expert <= placement.num_experts_of(rank); ++expert) {
    offsets.push_back(expert * capacity);
  }
  return Placer(sources, placement, rank, std::move(offsets), capacity).place();
}

std::int64_t fullest_expert(const Sources& sources, const Placement& placement) {
  return std::ranges::max(entries_per_expert(sources, placement));
}

std::int64_t most_packed_rows(const Sources& sources, const Placement& placement, int alignment) {
  const std::vector<std::int64_t> entries = entries_per_expert(sources, placement);
  std::int64_t most = 0;
  for (int rank = 0; rank < placement.num_ranks; ++rank) {
    std::int64_t rows = 0;
    for (std::int64_t expert = placement.first_expert(rank); expert < placement.first_expert(rank + 1); ++expert) {
      rows += aligned(entries[static_cast<std::size_t>(expert)], alignment);
    }
    most = std::max(most, rows);
  }
  return most;
}

}  // namespace moelink::perf

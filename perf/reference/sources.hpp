// What all ranks pass to one dispatch, and where the experts live.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/common/routing.hpp"

namespace moelink::perf {

/// Which ranks pass the same tokens, and who owns which expert. An expert that lives in several places has as many
/// physical ones.
struct Placement {
  int num_ranks = 1;
  int ranks_per_source = 1;      ///< ranks that pass the same tokens: a group, in tensor parallel all
  std::int64_t num_experts = 1;  ///< physical
  int max_replicas = 1;
  /// [experts that ids name, max_replicas] physical experts, -1 behind the last; empty: ids are physical experts.
  std::vector<std::int32_t> expert_map = {};

  [[nodiscard]] int num_sources() const noexcept { return num_ranks / ranks_per_source; }
  [[nodiscard]] int source_of(int rank) const noexcept { return rank / ranks_per_source; }
  /// Rank r owns [first_expert(r), first_expert(r + 1)).
  [[nodiscard]] std::int64_t first_expert(int rank) const noexcept { return num_experts * rank / num_ranks; }
  [[nodiscard]] std::int64_t num_experts_of(int rank) const noexcept {
    return first_expert(rank + 1) - first_expert(rank);
  }
  [[nodiscard]] int owner_of(std::int64_t expert) const noexcept;
  /// Which of an expert's places serves a token: its replicas take turns. `id` names an expert.
  [[nodiscard]] std::int64_t physical_expert(int source, std::int64_t token, std::int64_t id) const noexcept;
};

/// One expert in one place if `replicas` is 1; else expert e has 1 + e mod `replicas` places, the first ones in the
/// order of experts, then all second ones, and so on, so that they lie on different ranks.
[[nodiscard]] Placement make_placement(int num_ranks, int ranks_per_source, std::int64_t num_experts, int replicas);

/// The routing of every source. Their entries are numbered one source behind the other.
class Sources {
 public:
  struct Entry {
    int source;
    std::int64_t entry;  ///< token * top_k + k, within the source
  };

  explicit Sources(std::vector<Routing> routings);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(routings_.size()); }
  [[nodiscard]] const Routing& operator[](int source) const { return routings_[static_cast<std::size_t>(source)]; }
  [[nodiscard]] int top_k() const noexcept { return routings_.front().top_k; }
  [[nodiscard]] std::int64_t num_entries() const noexcept { return first_.back(); }
  [[nodiscard]] std::int64_t first_entry(int source) const { return first_[static_cast<std::size_t>(source)]; }
  [[nodiscard]] Entry locate(std::int64_t entry) const noexcept;

 private:
  std::vector<Routing> routings_;
  std::vector<std::int64_t> first_;  // [size + 1]
};

}  // namespace moelink::perf

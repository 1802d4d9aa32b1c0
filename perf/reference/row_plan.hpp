// Where every (token, k) entry has to go: the documented order, worked out in the plainest way.
#pragma once

#include <cstdint>
#include <vector>

#include "moelink/types.hpp"
#include "perf/reference/sources.hpp"

namespace moelink::perf {

/// The rows of one rank, in the order of its experts; inside an expert in the order of entries. Entries are numbered as
/// in Sources, experts are local ones unless said.
struct RowPlan {
  int rank = 0;
  std::vector<std::int64_t> offsets;        ///< [experts + 1] first row of each expert
  std::vector<std::int32_t> counts;         ///< [experts] rows that were kept
  std::vector<std::int64_t> entry_of_row;   ///< -1 on pads
  std::vector<std::int32_t> expert_of_row;  ///< -1 on pads
  std::vector<std::int64_t> row_of_entry;   ///< [all entries] -1 where there is no row here
  /// [entries of this rank's source] physical expert, of any rank, that has a row for it; -1: none has.
  std::vector<std::int32_t> expert_of_entry;
  std::int64_t kept = 0;              ///< entries that have a row here
  std::int64_t over_capacity = 0;     ///< entries that had no room here
  std::int64_t dropped_by_peers = 0;  ///< entries of this rank's source that had no room at another rank
  std::int64_t out_of_range = 0;      ///< entries of this rank's source whose id is neither -1 nor an expert

  [[nodiscard]] std::int64_t num_rows() const noexcept { return static_cast<std::int64_t>(entry_of_row.size()); }
};

/// Each expert's rows are contiguous and start at a multiple of `alignment`.
[[nodiscard]] RowPlan plan_packed_rows(const Sources& sources, const Placement& placement, int rank, int alignment);

/// Expert e has rows e * capacity up to its capacity; entries past it are dropped, the latest first.
[[nodiscard]] RowPlan plan_batched_rows(const Sources& sources, const Placement& placement, int rank,
                                        std::int64_t capacity);

/// [physical experts] entries that go there.
[[nodiscard]] std::vector<std::int64_t> entries_per_expert(const Sources& sources, const Placement& placement);

/// Entries of the fullest expert: the batched capacity that drops nothing. 0 without tokens.
[[nodiscard]] std::int64_t fullest_expert(const Sources& sources, const Placement& placement);

/// Rows of the rank with the most packed rows.
[[nodiscard]] std::int64_t most_packed_rows(const Sources& sources, const Placement& placement, int alignment);

}  // namespace moelink::perf

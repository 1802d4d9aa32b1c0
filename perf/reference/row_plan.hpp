// Where every (token, k) entry has to go: the documented order, worked out in the plainest way.
#pragma once

#include <cstdint>
#include <vector>

#include "moelink/types.hpp"
#include "perf/common/routing.hpp"

namespace moelink::perf {

/// Rows in expert order; inside an expert in the order of entries. An entry is token * top_k + k.
struct RowPlan {
  std::vector<std::int64_t> offsets;        ///< [num_experts + 1] first row of each expert
  std::vector<std::int32_t> counts;         ///< [num_experts] rows that were kept
  std::vector<std::int64_t> entry_of_row;   ///< -1 on pads
  std::vector<std::int32_t> expert_of_row;  ///< -1 on pads
  std::vector<std::int64_t> row_of_entry;   ///< -1 where there is no row
  std::int64_t kept = 0;                    ///< entries that have a row
  std::int64_t over_capacity = 0;           ///< entries that had no room
  std::int64_t out_of_range = 0;            ///< entries whose id is neither -1 nor an expert

  [[nodiscard]] std::int64_t num_rows() const noexcept { return static_cast<std::int64_t>(entry_of_row.size()); }
};

/// Each expert's rows are contiguous and start at a multiple of `alignment`.
[[nodiscard]] RowPlan plan_packed_rows(const Routing& routing, int alignment);

/// Expert e has rows e * capacity up to its capacity; entries past it are dropped, the latest first.
[[nodiscard]] RowPlan plan_batched_rows(const Routing& routing, std::int64_t capacity);

/// Entries of the fullest expert: the batched capacity that drops nothing. 0 without tokens.
[[nodiscard]] std::int64_t fullest_expert(const Routing& routing);

}  // namespace moelink::perf

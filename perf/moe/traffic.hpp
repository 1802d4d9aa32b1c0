// What one call has to move, from the routing alone.
#pragma once

#include <cstdint>

#include "moelink/types.hpp"
#include "perf/reference/sources.hpp"

namespace moelink::perf {

/// Bytes of the rows of one call.
struct RowBytes {
  std::int64_t input = 0;  ///< a token as it is passed to dispatch, with its scales
  std::int64_t token = 0;  ///< as it travels, with its scales
  std::int64_t expert_output = 0;
  std::int64_t part = 0;  ///< a rank's part of a token's sum
  std::int64_t output = 0;
};

/// Bytes of one half of a call, of the rank that has most of each.
struct PhaseTraffic {
  std::int64_t logical = 0;  ///< rows that its experts receive or give
  std::int64_t wire = 0;     ///< to or from other ranks, the larger: what a link carries in one direction
  std::int64_t moved = 0;    ///< through its memory, reads and writes
};

struct MoeTraffic {
  PhaseTraffic dispatch;
  PhaseTraffic combine;
};

/// `capacity`: most rows of an expert; what is past it has no row. A token travels once to each rank that has one of
/// its experts, a part of its sum once back. With groups, member t mod group sends token t and sums it. Tensor parallel
/// sends nothing in dispatch; each rank's combine sends and receives what an all-reduce of the output has to.
[[nodiscard]] MoeTraffic traffic_of(Mode mode, const Sources& sources, const Placement& placement,
                                    std::int64_t capacity, const RowBytes& bytes);

}  // namespace moelink::perf

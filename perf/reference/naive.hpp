// The plain loops that anyone would write first, on one host thread: what a library has to beat.
#pragma once

#include <vector>

#include "perf/reference/moe_reference.hpp"

namespace moelink::perf {

/// Microseconds of each sample.
struct NaiveTimes {
  std::vector<double> dispatch_us;
  std::vector<double> combine_us;
};

/// Times routing and copying rows one after the other into expert order, and summing them back. Every entry has a row,
/// without alignment or capacity; scales are not copied.
[[nodiscard]] NaiveTimes time_naive(const MoeCase& moe, int samples, Team& team);

}  // namespace moelink::perf

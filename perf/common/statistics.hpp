// What is told of a series of times.
#pragma once

#include <vector>

namespace moelink::perf {

struct Percentiles {
  double p50 = 0;
  double p99 = 0;
};

/// By nearest rank: the smallest sample that at least so many percent of the samples do not exceed. No samples: zeros.
[[nodiscard]] Percentiles percentiles(std::vector<double> samples);

}  // namespace moelink::perf

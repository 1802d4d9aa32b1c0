#include "perf/common/statistics.hpp"

#include <algorithm>
#include <cmath>

namespace moelink::perf {

Percentiles percentiles(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const auto nearest_rank = [&](double fraction) {
    const auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(samples.size())));
    return samples[std::max<std::size_t>(rank, 1) - 1];
  };
  return {.p50 = nearest_rank(0.50), .p99 = nearest_rank(0.99)};
}

}  // namespace moelink::perf

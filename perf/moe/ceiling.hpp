// The ceilings of a GPU: the best times of plain kernels that move the rows of a case, their places known.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "perf/common/timing.hpp"
#include "perf/moe/moe_set.hpp"

namespace moelink::perf {

struct Ceilings {
  std::optional<double> expand_us;  ///< one read, top_k scattered writes: dispatch
  std::optional<double> gather_us;  ///< top_k reads, one write: combine
};

/// Times them on the buffers of the sets, which they overwrite. Empty on the host, without tokens, and in builds
/// without nvcc.
[[nodiscard]] Ceilings time_ceilings(const std::vector<std::unique_ptr<MoeSet>>& sets, StreamView stream,
                                     const TimingOptions& options);

}  // namespace moelink::perf

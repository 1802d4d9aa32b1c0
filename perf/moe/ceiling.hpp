// The ceilings of a GPU: the best times of plain kernels that move the rows of a case, their places known.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "perf/common/timing.hpp"
#include "perf/moe/moe_set.hpp"

namespace moelink::perf {

struct Ceilings {
  std::optional<double> expand_us;  ///< one read of each token that has rows here, scattered writes: dispatch
  std::optional<double> gather_us;  ///< reads of its rows, one write: combine
};

/// Times them on the buffers of the sets, which they overwrite. Rows that other ranks send are taken to be here. Empty on
/// the host, where no token has a row, and in builds without nvcc.
[[nodiscard]] Ceilings time_ceilings(const std::vector<std::unique_ptr<MoeSet>>& sets, StreamView stream,
                                     const TimingOptions& options);

}  // namespace moelink::perf

// How a tool that measures ranks begins and ends.
#pragma once

#include <functional>

#include "perf/common/flags.hpp"
#include "perf/common/ranks.hpp"
#include "perf/common/results.hpp"
#include "perf/common/table.hpp"

namespace moelink::perf {

/// Runs measure_rank(communicator), which returns an exit code, for every rank of this process; returns that of rank 0,
/// or of the only one. Files that cannot be written are an error before anything is measured.
[[nodiscard]] int measure_on_ranks(const RankFlags& ranks, const PlaceFlags& place, const OutputFlags& output,
                                   const std::function<int(const Communicator&)>& measure_rank);

/// Whether values were right below the table; on rank 0 the files. Returns the exit code.
[[nodiscard]] int conclude(const Communicator& communicator, const OutputFlags& output, const Results& results,
                           Table& table);

}  // namespace moelink::perf

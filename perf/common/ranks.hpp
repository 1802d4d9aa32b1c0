// Ranks of a perf tool: threads of this process (--ranks), or one rank of a launcher's group (mpirun, torchrun).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "moelink/communicator.hpp"
#include "perf/common/flags.hpp"
#include "perf/common/statistics.hpp"

namespace CLI {
class App;
}

namespace moelink::perf {

struct RankFlags {
  int num_ranks = 0;       ///< in this process; 0: as the launcher's variables say, else one
  int ranks_per_node = 0;  ///< of nodes that are pretended; 0: nodes are what they are
};

void add_rank_flags(CLI::App& app, RankFlags& flags);

/// Runs body(communicator) for every rank of this process, each on a thread of its own, and waits. --device cuda gives
/// the ranks all devices in turn, cuda:<ordinal> puts them on that one. The first exception is thrown again.
void run_on_ranks(const RankFlags& ranks, const PlaceFlags& place,
                  const std::function<void(const Communicator&)>& body);

/// Threads of one rank: as many as --threads says, else the cores shared among the ranks of its node.
[[nodiscard]] int threads_of_rank(const Communicator& communicator, const PlaceFlags& place);

/// For each sample the slowest rank's value. Collective; `mine` is equally long on every rank.
[[nodiscard]] std::vector<double> slowest_of_ranks(const Communicator& communicator, const std::vector<double>& mine);

/// The sum over ranks. Collective.
[[nodiscard]] std::int64_t sum_over_ranks(const Communicator& communicator, std::int64_t mine);
[[nodiscard]] double sum_over_ranks(const Communicator& communicator, double mine);

}  // namespace moelink::perf

// Ranks of a test spread over the processes of a launched group, on one machine or several.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "transports/rendezvous.hpp"

namespace moelink::test {

/// Whether a launcher started this process as one of several: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are set.
[[nodiscard]] bool is_launched();

/// As run_ranks, but called by every process of the launched group, in the same order: process p runs the ranks whose
/// number is p modulo the number of processes, each in a thread. They meet over TCP. Returns the same on every process.
[[nodiscard]] std::vector<std::string> run_spread_ranks(std::vector<int> nodes,
                                                        const std::function<void(Rendezvous&)>& body);

}  // namespace moelink::test

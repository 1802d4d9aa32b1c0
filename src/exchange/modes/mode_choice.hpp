// Which mode an Exchange has: a pure function of the configuration and of where the ranks are, the same on every rank.
#pragma once

#include <vector>

#include "moelink/exchange.hpp"
#include "moelink/topology.hpp"

namespace moelink {

/// Never automatic. Throws, naming ranks and remedy, if the mode that was asked for cannot work between these ranks:
/// ErrorCode::invalid_argument (local with several ranks) or unsupported.
[[nodiscard]] Mode choose_mode(const ExchangeConfig& config, const Topology& topology);

/// The node of each rank as p2p sees it: ranks that can all map each other's memory. Those of a machine that cannot are
/// nodes of their own. Empty if that is one node.
[[nodiscard]] std::vector<int> nodes_of_ranks(const Topology& topology);

}  // namespace moelink

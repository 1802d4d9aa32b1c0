// Which mode an Exchange has: a pure function of the configuration and of where the ranks are, the same on every rank.
#pragma once

#include "moelink/exchange.hpp"
#include "moelink/topology.hpp"

namespace moelink {

/// Never automatic. Throws, naming ranks and remedy, if the mode that was asked for cannot work between these ranks:
/// ErrorCode::invalid_argument (local with several ranks) or unsupported.
[[nodiscard]] Mode choose_mode(const ExchangeConfig& config, const Topology& topology);

/// Throws ErrorCode::unsupported: no code for this mode.
[[noreturn]] void refuse_unbuilt(Mode mode);

}  // namespace moelink

// Whether the ranks of a node use multicast (NVLS): a pure function of what the ranks published.
#pragma once

#include <string>

#include "transports/memory.hpp"
#include "transports/reach.hpp"

namespace moelink {

/// Fewer ranks never use it: with 2 it would move 1.5 times the bytes of plain stores, with 3 as many.
inline constexpr int kMinMulticastRanks = 4;

/// Empty if multicast may be tried on `node`, whose memory is of `kind`; else the first reason against it.
[[nodiscard]] std::string why_no_multicast(const ReachFacts& facts, int node, MemoryKind kind);

}  // namespace moelink

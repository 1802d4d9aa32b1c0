// Where ranks are decides how they can sum: pure functions of the topology, the same on every rank.
#pragma once

#include <string>

#include "moelink/all_reduce.hpp"
#include "moelink/topology.hpp"

namespace moelink {

/// Whether NCCL sums: asked for by name, or the ranks are GPUs on several nodes.
[[nodiscard]] bool uses_nccl(const Topology& topology, AllReduceAlgorithm algorithm);

/// Throws ErrorCode::unsupported if ranks in these places cannot sum in this way; the sentence names the ranks.
void check_place(const Topology& topology, AllReduceAlgorithm algorithm);

/// Why these ranks, of one node, cannot sum by pack; empty: they can. It takes two of them (or one), to whom stores of
/// 16 bytes in the other's memory are atomic: docs/all-reduce.md, "Pack".
[[nodiscard]] std::string why_no_pack(const Topology& topology);

}  // namespace moelink

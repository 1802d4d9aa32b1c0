// What a rank tells the others about itself, and how it reaches them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "moelink/topology.hpp"

namespace moelink {

/// This process and `device`, as `rank`. `node` replaces boot id and host name unless empty.
[[nodiscard]] RankInfo describe_self(int rank, Device device, std::string_view node);

[[nodiscard]] Bytes encode(const RankInfo& info);
/// Throws ErrorCode::peer if this is not a description of `rank`.
[[nodiscard]] RankInfo decode_rank_info(int rank, std::span<const std::byte> bytes);

/// Numbers the nodes: 0 for rank 0's, then in the order of their first rank.
void number_nodes(std::vector<RankInfo>& ranks);

/// How `rank` reaches each of `ranks`.
[[nodiscard]] std::vector<Link> links_of(int rank, const std::vector<RankInfo>& ranks);

}  // namespace moelink

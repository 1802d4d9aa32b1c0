// What the p2p mode takes beside the nvlink mode's memory: regions that rows for and from remotes lie in.
#pragma once

#include <vector>

#include "exchange/shape.hpp"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// The ranks of other nodes, ascending. `nodes`: the node of each rank.
[[nodiscard]] std::vector<int> remotes_of(const std::vector<int>& nodes, int rank);
/// RemoteArgs::routes and sources. The rank before this one is the first source, and so on backwards: each sends to the
/// next one first.
[[nodiscard]] std::vector<RankRoute> routes_of_ranks(const std::vector<int>& nodes, int rank);
[[nodiscard]] std::vector<i32> sources_in_order(const std::vector<int>& nodes, int rank);

/// Layout and chunks of what travels between nodes: equal on all ranks.
struct RemotePlan {
  RemoteShape shape;
  int log2_slots_per_chunk = 0;
  int max_chunks = 1;  ///< of one source in one phase, the header's included

  /// RemoteArgs of one rank without what only a running rank has: addresses and the channel.
  [[nodiscard]] RemoteArgs args_of(const std::vector<int>& nodes, int rank) const;

  /// Throws invalid_argument if there are more slots than chunks can be numbered for.
  [[nodiscard]] static RemotePlan of(const NvlinkShape& shape, i64 widest_row_bytes);
};

/// Row and scales of the widest payload.
[[nodiscard]] i64 widest_row_bytes(const ExchangeShape& shape, const ExchangeConfig& config);

/// This rank's private memory for remotes: RemoteArgs.
struct RemoteTables {
  Place<RankRoute> routes;
  Place<i32> sources;
  Place<u32> pieces;
  Place<u64> relayed;
  Place<u64> free;
  i64 total_bytes = 0;

  [[nodiscard]] static RemoteTables of(int num_ranks, int num_remotes, int max_chunks);
};

void add_remote_memory(const ExchangeShape& shape, const ExchangeConfig& config, MemoryReport& report);

}  // namespace moelink

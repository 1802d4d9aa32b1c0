// What the p2p mode takes beside the nvlink mode's memory: regions that rows for and from remotes lie in.
#pragma once

#include "exchange/shape.hpp"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// Layout and chunks of what travels between nodes: equal on all ranks.
struct RemotePlan {
  RemoteShape shape;
  int log2_slots_per_chunk = 0;
  int max_chunks = 1;  ///< of one source in one phase, the header's included

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
  i64 total_bytes = 0;

  [[nodiscard]] static RemoteTables of(int num_ranks, int num_remotes, int max_chunks);
};

void add_remote_memory(const ExchangeShape& shape, const ExchangeConfig& config, MemoryReport& report);

}  // namespace moelink

#include "transports/multicast/decision.hpp"

#include <vector>

#include "base/text.hpp"

namespace moelink {
namespace {

std::vector<int> ranks_of(const ReachFacts& facts, int node) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < facts.nodes.size(); ++rank) {
    if (facts.nodes[rank] == node) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

}  // namespace

std::string why_no_multicast(const ReachFacts& facts, int node, MemoryKind kind) {
  const std::vector<int> ranks = ranks_of(facts, node);
  const auto place = [&](int rank) -> const RankPlace& { return facts.places[static_cast<std::size_t>(rank)]; };
  for (const int rank : ranks) {
    if (!place(rank).allows_multicast) {
      return text("rank ", rank, " forbids it (MOELINK_NVLS=0 or NCCL_NVLS_ENABLE=0)");
    }
  }
  if (static_cast<int>(ranks.size()) < kMinMulticastRanks) {
    return text("the node has ", ranks.size(), " ranks; it pays from ", kMinMulticastRanks, " on");
  }
  if (kind != MemoryKind::vmm && kind != MemoryKind::fabric) {
    return text("memory of kind ", name_of(kind), " cannot be bound to a multicast object");
  }
  for (const int rank : ranks) {
    if (!place(rank).has_multicast) {
      return text("the device of rank ", rank, " does not support it");
    }
    for (const int other : ranks) {
      if (other < rank && place(other).device_uuid == place(rank).device_uuid) {
        return text("ranks ", other, " and ", rank, " share a device");
      }
    }
  }
  return "";
}

}  // namespace moelink

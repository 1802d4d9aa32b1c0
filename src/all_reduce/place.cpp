#include "all_reduce/place.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "moelink/error.hpp"
#include "moelink/protocol/all_reduce.hpp"

namespace moelink {
namespace {

[[noreturn]] void cannot(const std::string& sentence) { throw Error(ErrorCode::unsupported, sentence); }

/// The first rank that runs on the host; none: end().
auto find_host_rank(const Topology& topology) {
  return std::ranges::find_if(topology.ranks(), [](const RankInfo& rank) { return rank.device.is_host(); });
}

void check_nccl(const Topology& topology) {
  if (const auto host = find_host_rank(topology); host != topology.ranks().end()) {
    cannot(text("all-reduce by NCCL: rank ", host->rank, " runs on the host; NCCL sums on GPUs only"));
  }
  for (const RankInfo& rank : topology.ranks()) {
    const auto earlier = topology.ranks().begin() + rank.rank;
    const auto other = std::find_if(topology.ranks().begin(), earlier,
                                    [&](const RankInfo& before) { return before.uuid == rank.uuid; });
    if (other != earlier) {
      cannot(text("all-reduce by NCCL: ranks ", other->rank, " and ", rank.rank, " share a GPU (", rank.device_name,
                  ", ", rank.pci_bus_id, "), which NCCL does not allow; give every rank a GPU of its own"));
    }
  }
}

}  // namespace

bool uses_nccl(const Topology& topology, AllReduceAlgorithm algorithm) {
  return algorithm == AllReduceAlgorithm::nccl ||
         (algorithm == AllReduceAlgorithm::automatic && topology.num_nodes() > 1 &&
          find_host_rank(topology) == topology.ranks().end());
}

void check_place(const Topology& topology, AllReduceAlgorithm algorithm) {
  if (uses_nccl(topology, algorithm)) {
    return check_nccl(topology);
  }
  if (topology.num_nodes() == 1) {
    return;
  }
  if (const auto host = find_host_rank(topology); host != topology.ranks().end()) {
    cannot(text("the ranks are on ", topology.num_nodes(), " nodes and rank ", host->rank,
                " runs on the host; all-reduce between nodes needs GPUs and NCCL"));
  }
  cannot(text("AllReduceConfig::algorithm is ", name_of(algorithm),
              ", which sums inside one node, but the ranks are on ", topology.num_nodes(),
              "; leave the choice to `automatic`, which takes NCCL"));
}

std::string why_no_pack(const Topology& topology) {
  if (!can_pack(topology.size())) {
    return text("it is for two ranks, and there are ", topology.size());
  }
  for (int from = 0; from < topology.size(); ++from) {
    for (int to = 0; to < topology.size(); ++to) {
      const Link link = topology.link(from, to);
      if (link == Link::pcie || link == Link::hidden || link == Link::none) {
        return text("rank ", from, " reaches the memory of rank ", to, " as '", name_of(link),
                    "', where a store of 16 bytes is not known to be seen whole; expected one GPU, or NVLink");
      }
    }
  }
  return "";
}

}  // namespace moelink

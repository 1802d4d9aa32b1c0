#include "all_reduce/place.hpp"

#include <gtest/gtest.h>

#include "moelink/error.hpp"

namespace moelink {
namespace {

struct Place {
  int node;
  int device;  ///< -1: the host
};

/// Ranks in these places; equal node and device: one GPU.
Topology topology_of(const std::vector<Place>& places) {
  std::vector<RankInfo> ranks;
  for (const Place& place : places) {
    RankInfo rank;
    rank.rank = static_cast<int>(ranks.size());
    rank.node = place.node;
    rank.node_id = "node " + std::to_string(place.node);
    rank.device = place.device < 0 ? Device::host() : Device::cuda(place.device);
    rank.uuid = place.device < 0 ? "" : std::to_string(place.node) + "/" + std::to_string(place.device);
    ranks.push_back(std::move(rank));
  }
  return Topology(ranks, std::vector(places.size(), std::vector(places.size(), Link::none)));
}

void expect_unsupported(const Topology& topology, AllReduceAlgorithm algorithm, const std::string& word) {
  try {
    check_place(topology, algorithm);
    ADD_FAILURE() << "was accepted; expected: " << word;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(AllReducePlace, NcclSumsBetweenNodesAndByNameOnly) {
  const Topology one_node = topology_of({{0, 0}, {0, 1}});
  const Topology two_nodes = topology_of({{0, 0}, {1, 0}});
  EXPECT_FALSE(uses_nccl(one_node, AllReduceAlgorithm::automatic));
  EXPECT_TRUE(uses_nccl(one_node, AllReduceAlgorithm::nccl));
  EXPECT_TRUE(uses_nccl(two_nodes, AllReduceAlgorithm::automatic));
  EXPECT_FALSE(uses_nccl(two_nodes, AllReduceAlgorithm::two_shot));
  EXPECT_NO_THROW(check_place(one_node, AllReduceAlgorithm::nccl));
  EXPECT_NO_THROW(check_place(two_nodes, AllReduceAlgorithm::automatic)) << "device 0 of two nodes is two devices";
}

TEST(AllReducePlace, RanksThatShareAGpuAreNamedWhenNcclIsAskedFor) {
  const Topology shared = topology_of({{0, 0}, {0, 1}, {0, 1}});
  EXPECT_NO_THROW(check_place(shared, AllReduceAlgorithm::automatic));
  expect_unsupported(shared, AllReduceAlgorithm::nccl, "ranks 1 and 2 share a GPU");
}

TEST(AllReducePlace, RankOnTheHostIsNamedWhenNcclIsAskedFor) {
  expect_unsupported(topology_of({{0, 0}, {0, -1}}), AllReduceAlgorithm::nccl, "rank 1 runs on the host");
}

TEST(AllReducePlace, HostRanksOnSeveralNodesAreRefusedInWords) {
  expect_unsupported(topology_of({{0, -1}, {1, -1}}), AllReduceAlgorithm::automatic,
                     "on 2 nodes and rank 0 runs on the host");
}

TEST(AllReducePlace, AlgorithmOfOneNodeIsRefusedOnSeveral) {
  expect_unsupported(topology_of({{0, 0}, {1, 0}}), AllReduceAlgorithm::stream, "stream, which sums inside one node");
}

std::string why_no_pack_over(Link there, Link back) {
  const std::vector<RankInfo> ranks = topology_of({{0, 0}, {0, 1}}).ranks();
  return why_no_pack(Topology(ranks, {{Link::self, there}, {back, Link::self}}));
}

TEST(AllReducePlace, PackNeedsStoresOfSixteenBytesThatAreSeenWholeInBothDirections) {
  for (const Link link : {Link::process, Link::shared, Link::same_device, Link::nvlink}) {
    EXPECT_EQ(why_no_pack_over(link, link), "") << name_of(link);
  }
  for (const Link link : {Link::pcie, Link::hidden, Link::none}) {
    EXPECT_NE(why_no_pack_over(link, Link::nvlink).find("rank 0 reaches the memory of rank 1 as"), std::string::npos);
    EXPECT_NE(why_no_pack_over(Link::nvlink, link).find("rank 1 reaches the memory of rank 0 as"), std::string::npos);
  }
}

TEST(AllReducePlace, PackIsForTwoRanks) {
  const std::vector<std::vector<Link>> links(3, std::vector(3, Link::same_device));
  EXPECT_NE(why_no_pack(Topology(topology_of({{0, 0}, {0, 0}, {0, 0}}).ranks(), links)).find("there are 3"),
            std::string::npos);
}

}  // namespace
}  // namespace moelink

// Nodes, routes and chunks of the p2p mode: pure functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "exchange/modes/mode_choice.hpp"
#include "exchange/modes/remote_memory.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// Ranks on the host; those of one node map each other over `link`.
Topology ranks_on(const std::vector<int>& nodes, Link link = Link::process) {
  std::vector<RankInfo> ranks(nodes.size());
  std::vector<std::vector<Link>> links(nodes.size());
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    ranks[r].rank = static_cast<int>(r);
    ranks[r].node = nodes[r];
    for (std::size_t to = 0; to < nodes.size(); ++to) {
      links[r].push_back(to == r ? Link::self : nodes[r] == nodes[to] ? link : Link::none);
    }
  }
  return {ranks, links};
}

TEST(NodesOfRanks, RanksThatCannotMapEachOtherAreNodesOfTheirOwn) {
  EXPECT_TRUE(nodes_of_ranks(ranks_on({0})).empty());
  EXPECT_TRUE(nodes_of_ranks(ranks_on({0, 0, 0})).empty());
  EXPECT_EQ(nodes_of_ranks(ranks_on({0, 1, 0})), (std::vector{0, 1, 0}));
  const std::vector<int> strangers = nodes_of_ranks(ranks_on({0, 0, 0}, Link::none));
  ASSERT_EQ(strangers.size(), 3U);
  EXPECT_NE(strangers[0], strangers[1]);
  EXPECT_NE(strangers[1], strangers[2]);
  EXPECT_NE(strangers[0], strangers[2]);
}

const std::vector<int> kDivisions[] = {{0, 1}, {0, 0, 1}, {0, 1, 0, 1, 2}, {3, 1, 1, 1}, {0, 1, 2, 3, 4, 5}};

TEST(RoutesOfRanks, BothEndsMeanTheSamePartOfARegion) {
  for (const std::vector<int>& nodes : kDivisions) {
    const int size = static_cast<int>(nodes.size());
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<RankRoute> routes = routes_of_ranks(nodes, rank);
      const auto num_remotes = static_cast<int>(remotes_of(nodes, rank).size());
      std::vector<bool> taken(static_cast<std::size_t>(num_remotes));
      for (int other = 0; other < size; ++other) {
        EXPECT_EQ(routes[other].remote == -1, nodes[other] == nodes[rank]);
        EXPECT_EQ(routes[other].peer == -1, nodes[other] != nodes[rank]);
        if (nodes[other] == nodes[rank]) {
          EXPECT_EQ(routes[other].peer, routes_of_ranks(nodes, other)[other].peer)
              << "numbers of a node's ranks differ";
          continue;
        }
        EXPECT_EQ(routes[other].there, routes_of_ranks(nodes, other)[rank].remote);
        ASSERT_LT(routes[other].remote, num_remotes);
        EXPECT_FALSE(taken[routes[other].remote]) << "two remotes share a part";
        taken[routes[other].remote] = true;
      }
    }
  }
}

TEST(SourcesInOrder, PeersComeBeforeRemotesAndTheRankItselfLast) {
  for (const std::vector<int>& nodes : kDivisions) {
    for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
      const std::vector<i32> sources = sources_in_order(nodes, rank);
      EXPECT_EQ(sources.back(), rank);
      const auto is_remote = [&](i32 other) { return nodes[other] != nodes[rank]; };
      EXPECT_TRUE(
          std::is_partitioned(sources.begin(), sources.end() - 1, [&](i32 other) { return !is_remote(other); }));
      std::vector<i32> sorted = sources;
      std::sort(sorted.begin(), sorted.end());
      std::vector<i32> all(nodes.size());
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(sorted, all);
    }
  }
  EXPECT_EQ(sources_in_order({0, 0, 1, 1}, 1), (std::vector<i32>{0, 3, 2, 1}));
}

TEST(RemotePlan, ChunksAreAsLargeAsANicWantsAndNeverTooManyToBeNumbered) {
  const auto plan = [](i64 max_tokens, i64 row_bytes) {
    return RemotePlan::of({.num_ranks = 4,
                           .node_ranks = 2,
                           .num_experts = 8,
                           .top_k = 8,
                           .max_tokens = max_tokens,
                           .row_pitch_bytes = row_bytes,
                           .partial_pitch_bytes = row_bytes},
                          row_bytes);
  };
  EXPECT_EQ(plan(128, 14336).log2_slots_per_chunk, 2) << "four rows of 14 KB";
  EXPECT_EQ(plan(128, 14336).max_chunks, 1 + 32);
  EXPECT_EQ(plan(5, 128).log2_slots_per_chunk, 3) << "as many as a sender of many tokens takes at once";
  EXPECT_EQ(plan(5, 128).max_chunks, 1 + 1);
  EXPECT_EQ(plan(1000, 1 << 20).log2_slots_per_chunk, 0);
  EXPECT_LE(plan(100'000, 1 << 20).max_chunks, 1 << 16);
  EXPECT_THROW((void)plan(600'000, 128), Error);
}

}  // namespace
}  // namespace moelink

#include "perf/common/routing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

std::vector<std::int64_t> ids_of(const Routing& routing, std::int64_t token) {
  const auto first = routing.expert_ids.begin() + token * routing.top_k;
  return {first, first + routing.top_k};
}

std::vector<std::int64_t> sorted_counts(const Routing& routing) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(routing.num_experts), 0);
  for (const std::int64_t id : routing.expert_ids) ++counts.at(static_cast<std::size_t>(id));
  std::ranges::sort(counts, std::greater<>{});
  return counts;
}

TEST(MakeRouting, UniformAndZipfPickDistinctExperts) {
  for (const RoutingKind kind : {RoutingKind::uniform, RoutingKind::zipf}) {
    const Routing routing = make_routing(kind, 500, 10, 8, 7);
    for (std::int64_t token = 0; token < routing.num_tokens; ++token) {
      const auto ids = ids_of(routing, token);
      EXPECT_EQ(std::set<std::int64_t>(ids.begin(), ids.end()).size(), 8U);
      EXPECT_TRUE(std::ranges::all_of(ids, [](std::int64_t id) { return id >= 0 && id < 10; }));
    }
  }
}

TEST(MakeRouting, UniformReachesEveryExpertAboutEqually) {
  const auto counts = sorted_counts(make_routing(RoutingKind::uniform, 4000, 16, 4, 3));  // 1000 each, sigma 27
  EXPECT_LT(counts.front(), 1150);
  EXPECT_GT(counts.back(), 850);
}

TEST(MakeRouting, ZipfIsLopsided) {
  const auto counts = sorted_counts(make_routing(RoutingKind::zipf, 4000, 64, 4, 3));
  EXPECT_GT(counts.front(), 10 * counts.back());
}

TEST(MakeRouting, KhotUsesTopKExpertsAndOneUsesOne) {
  const auto khot = sorted_counts(make_routing(RoutingKind::khot, 100, 64, 4, 3));
  EXPECT_EQ(khot[3], 100);
  EXPECT_EQ(khot[4], 0);
  EXPECT_EQ(sorted_counts(make_routing(RoutingKind::one, 100, 64, 4, 3)).front(), 400);
}

TEST(MakeRouting, SeedDecidesAndWeightsAreFit) {
  const Routing a = make_routing(RoutingKind::uniform, 50, 64, 4, 1);
  EXPECT_EQ(a.expert_ids, make_routing(RoutingKind::uniform, 50, 64, 4, 1).expert_ids);
  EXPECT_EQ(a.weights, make_routing(RoutingKind::uniform, 50, 64, 4, 1).weights);
  EXPECT_NE(a.expert_ids, make_routing(RoutingKind::uniform, 50, 64, 4, 2).expert_ids);
  for (std::size_t token = 0; token < 50; ++token) {
    float sum = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_GT(a.weights[token * 4 + k], 0);
      sum += a.weights[token * 4 + k];
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST(MakeRouting, MoreDistinctExpertsThanThereAreIsRefused) {
  EXPECT_THROW((void)make_routing(RoutingKind::uniform, 1, 4, 8, 1), UsageError);
  EXPECT_EQ(make_routing(RoutingKind::one, 1, 4, 8, 1).expert_ids.size(), 8U);
  EXPECT_TRUE(make_routing(RoutingKind::zipf, 0, 4, 2, 1).expert_ids.empty());
}

}  // namespace
}  // namespace moelink::perf

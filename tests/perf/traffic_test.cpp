// What moe_perf says that a call has to move, against counts by hand.
#include "perf/moe/traffic.hpp"

#include <gtest/gtest.h>

namespace moelink::perf {
namespace {

constexpr RowBytes kBytes{.input = 1000, .token = 1000, .expert_output = 100, .part = 10, .output = 1};
constexpr std::int64_t kNoBound = 1 << 20;

Routing routing(std::vector<std::int64_t> ids) {
  const auto num_tokens = static_cast<std::int64_t>(ids.size()) / 2;
  const std::vector<float> weights(ids.size(), 1);
  return {.num_tokens = num_tokens, .num_experts = 4, .top_k = 2, .expert_ids = std::move(ids), .weights = weights};
}

TEST(Traffic, LocalReadsTokensOnceAndWritesEveryRow) {
  const MoeTraffic traffic =
      traffic_of(Mode::local, Sources({routing({0, 1, 2, 3})}), make_placement(1, 1, 4, 1), kNoBound, kBytes);
  EXPECT_EQ(traffic.dispatch.logical, 4 * 1000);
  EXPECT_EQ(traffic.dispatch.moved, (2 + 4) * 1000);
  EXPECT_EQ(traffic.dispatch.wire, 0);
  EXPECT_EQ(traffic.combine.moved, 4 * 100 + 2 * 1);
  EXPECT_EQ(traffic.combine.wire, 0);
}

TEST(Traffic, TokenTravelsOnceToARankThatHasSeveralOfItsExperts) {
  // Rank 0 has experts 0 and 1. Rank 0's tokens: one stays, one goes to rank 1 alone, one to both. Rank 1's: one to
  // both.
  const Sources sources({routing({0, 1, 2, 3, 1, 2}), routing({0, 3})});
  const MoeTraffic traffic = traffic_of(Mode::nvlink, sources, make_placement(2, 1, 4, 1), kNoBound, kBytes);
  EXPECT_EQ(traffic.dispatch.logical, 4 * 1000);              // each rank has four rows
  EXPECT_EQ(traffic.dispatch.wire, 2 * 1000);                 // two tokens go to rank 1, one comes back
  EXPECT_EQ(traffic.dispatch.moved, (1 + 2 * 2 + 4) * 1000);  // rank 1: own, received twice, rows; rank 0: 3 + 2 + 4
  EXPECT_EQ(traffic.combine.wire, 2 * 10);
  EXPECT_EQ(traffic.combine.moved, 4 * 100 + 2 * 2 * 10 + 3);  // rank 0: rows, two parts written and read, outputs
}

TEST(Traffic, DroppedRowsAreNotCounted) {
  const Sources sources({routing({3, 3, 3, 3})});
  const MoeTraffic traffic = traffic_of(Mode::local, sources, make_placement(1, 1, 4, 1), 3, kBytes);
  EXPECT_EQ(traffic.dispatch.logical, 3 * 1000);
}

TEST(Traffic, MembersOfAGroupShareTheSendingAndGiveEachOtherTheResults) {
  // Groups {0, 1} and {2, 3}, an expert on each rank. Token 0 of group 0 goes to ranks 2 and 3, token 1 to rank 2
  // alone.
  const Sources sources({routing({2, 3, 2, 2}), routing({})});
  const MoeTraffic traffic = traffic_of(Mode::nvlink, sources, make_placement(4, 2, 4, 1), kNoBound, kBytes);
  EXPECT_EQ(traffic.dispatch.wire, 2 * 1000);   // member 0 sends token 0 twice, member 1 token 1 once; rank 2 gets 2
  EXPECT_EQ(traffic.combine.wire, 2 * 10 + 1);  // member 0 gets two parts, and member 1's result
}

TEST(Traffic, TensorParallelMovesWhatAnAllReduceDoes) {
  const Sources sources({routing({0, 1, 2, 3})});
  const MoeTraffic traffic = traffic_of(Mode::tensor_parallel, sources, make_placement(4, 4, 4, 1), kNoBound, kBytes);
  EXPECT_EQ(traffic.dispatch.wire, 0);
  EXPECT_EQ(traffic.dispatch.logical, 1000);
  EXPECT_EQ(traffic.combine.wire, 2 * 3 * 2 / 4);
}

TEST(Traffic, NoTokensMoveNothing) {
  const Sources sources({routing({}), routing({})});
  const MoeTraffic traffic = traffic_of(Mode::nvlink, sources, make_placement(2, 1, 4, 1), kNoBound, kBytes);
  EXPECT_EQ(traffic.dispatch.moved + traffic.dispatch.wire + traffic.combine.moved + traffic.combine.wire, 0);
}

}  // namespace
}  // namespace moelink::perf

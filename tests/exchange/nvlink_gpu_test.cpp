// Several ranks on one GPU, of one node and of several, between which rows are staged in pinned memory: calls captured
// in graphs and replayed, and what a rank that stays away does to the others.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "exchange/ranks_case.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

/// How many ranks, and how many of them are a node; 0: all.
struct OnOneGpu {
  int num_ranks;
  int ranks_per_node;
};

class NvlinkOnOneGpu : public testing::TestWithParam<OnOneGpu> {
 protected:
  void SetUp() override {
    if (Device::cuda_count() == 0) GTEST_SKIP() << "needs a CUDA device; none was found";
  }
};

TEST_P(NvlinkOnOneGpu, ReplayedGraphsWithChangingCountsKeepTheirEpochs) {
  const RanksShape shape{.num_ranks = GetParam().num_ranks,
                         .num_experts = 24,
                         .top_k = 4,
                         .hidden = 1032,
                         .max_tokens = 40,
                         .device_counts = true,
                         .ranks_per_node = GetParam().ranks_per_node};
  std::vector<RanksCall> calls;
  for (unsigned i = 0; i < 8; ++i) calls.emplace_back(shape, i % 2 == 0 ? Routes::uniform : Routes::holes, i);
  on_every_rank(ranks_on(Device::cuda(0), shape), [&](const Communicator& communicator) {
    ExchangeRank rank(communicator, shape);
    rank.load(calls[0]);
    const bool split = shape.num_ranks == 4;
    const Graph graph = Graph::record(rank.stream, [&] { rank.enqueue(split); });
    communicator.barrier();
    std::int64_t wrong = 0;
    for (int replay = 0; replay < 1000; ++replay) {
      const RanksCall& call = calls[static_cast<std::size_t>(replay * 7 % 8)];
      if (replay % 10 < 2) rank.load(call);
      graph.launch(rank.stream);
      if (replay % 10 < 2) wrong += rank.count_wrong(call);
      if (replay % 10 < 2) rank.exchange.check();
    }
    rank.stream.synchronize();
    rank.exchange.check();
    EXPECT_EQ(wrong, 0) << "rank " << communicator.rank();
    rank.run(calls[3]);  // outside the graph, on the same epochs
    communicator.barrier();
  });
}

TEST_P(NvlinkOnOneGpu, LargeModelAcrossTheCrossoverMatchesTheReference) {
  const RanksShape shape{.num_ranks = GetParam().num_ranks,
                         .num_experts = 256,
                         .top_k = 8,
                         .hidden = 2048,
                         .max_tokens = 600,
                         .ranks_per_node = GetParam().ranks_per_node};
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(shape.num_ranks), 1);
  std::vector<RanksCall> calls;
  calls.emplace_back(shape, Routes::uniform, 1, tokens);
  tokens.front() = 600;
  calls.emplace_back(shape, Routes::uniform, 2, tokens);
  tokens.assign(tokens.size(), 128);
  calls.emplace_back(shape, Routes::uniform, 3, tokens);
  tokens.assign(tokens.size(), 560);
  calls.emplace_back(shape, Routes::one_rank, 4, tokens);
  check_calls(Device::cuda(0), shape, calls);
  check_calls(Device::cuda(0), shape, calls, 1, /*split=*/true);
}

/// The host only knows that there may be many: few come as lines, to a kernel that was chosen for many.
TEST_P(NvlinkOnOneGpu, LaunchesForManyTokensTakeFew) {
  const RanksShape shape{.num_ranks = GetParam().num_ranks,
                         .num_experts = 24,
                         .top_k = 4,
                         .hidden = 2048,
                         .max_tokens = 1100,
                         .accumulate = true,
                         .device_counts = true,
                         .ranks_per_node = GetParam().ranks_per_node};
  std::vector<RanksCall> calls;
  for (const std::int64_t first : {1, 17, 1100}) {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(shape.num_ranks), 3);
    tokens.front() = first;
    calls.emplace_back(shape, Routes::uniform, static_cast<unsigned>(first), tokens);
  }
  check_calls(Device::cuda(0), shape, calls);
  check_calls(Device::cuda(0), shape, calls, 1, /*split=*/true);
}

INSTANTIATE_TEST_SUITE_P(Exchange, NvlinkOnOneGpu,
                         testing::Values(OnOneGpu{2, 0}, OnOneGpu{4, 0}, OnOneGpu{8, 0}, OnOneGpu{2, 1},
                                         OnOneGpu{4, 2}),
                         [](const auto& tested) {
                           const int per_node = tested.param.ranks_per_node;
                           return std::to_string(tested.param.num_ranks) + "_ranks" +
                                  (per_node == 0 ? "" : "_" + std::to_string(per_node) + "_a_node");
                         });

TEST(NvlinkOnAGpu, RankThatNeverCallsEndsTheOtherWithATimeout) {
  if (Device::cuda_count() == 0) GTEST_SKIP() << "needs a CUDA device; none was found";
  for (const int ranks_per_node : {0, 1}) {
    SCOPED_TRACE(ranks_per_node == 0 ? "one node" : "two nodes");
    const RanksShape shape{.num_ranks = 2, .ranks_per_node = ranks_per_node};
    const RanksCall call(shape, Routes::uniform, 1, {8, 8});
    const std::vector<Communicator> group = ranks_on(Device::cuda(0), shape, std::chrono::milliseconds(500));
    on_every_rank(group, [&](const Communicator& communicator) {
      ExchangeRank rank(communicator, shape);
      if (communicator.rank() == 1) return;
      rank.load(call);
      rank.enqueue();
      rank.stream.synchronize();  // the kernels left in good order: the context survives
      EXPECT_THROW(rank.exchange.check(), Error);
      EXPECT_THROW((void)rank.exchange.dispatch(rank.dispatch_args(), rank.stream), Error);
    });
  }
}

/// Of many tokens a warp of each block stores the flags of the others: it has to end when they do.
TEST(NvlinkOnAGpu, RankThatNeverCombinesManyTokensEndsTheOtherWithATimeout) {
  if (Device::cuda_count() == 0) GTEST_SKIP() << "needs a CUDA device; none was found";
  const RanksShape shape{.num_ranks = 2, .num_experts = 16, .top_k = 8, .hidden = 2048, .max_tokens = 1100};
  const RanksCall call(shape, Routes::uniform, 1, {1100, 1100});
  const std::vector<Communicator> group = ranks_on(Device::cuda(0), shape, std::chrono::milliseconds(2000));
  on_every_rank(group, [&](const Communicator& communicator) {
    ExchangeRank rank(communicator, shape);
    EXPECT_NE(rank.exchange.describe_plan(1100).find("a warp for each"), std::string::npos)
        << rank.exchange.describe_plan(1100);
    rank.load(call);
    rank.batch = rank.exchange.dispatch(rank.dispatch_args(), rank.stream);
    rank.stream.synchronize();
    rank.exchange.check();
    communicator.barrier();
    if (communicator.rank() == 1) return;
    rank.exchange.combine(rank.combine_args(), rank.stream);
    rank.stream.synchronize();  // the kernel left in good order: the context survives
    EXPECT_THROW(rank.exchange.check(), Error);
  });
}

/// A launch of one block has none to relay what the proxy says; of two, one relays and one works.
TEST(NvlinkOnAGpu, LaunchesOfOneOrTwoBlocksMatchBetweenNodes) {
  if (Device::cuda_count() == 0) GTEST_SKIP() << "needs a CUDA device; none was found";
  const RanksShape shape{
      .num_ranks = 2, .num_experts = 16, .top_k = 8, .hidden = 256, .max_tokens = 600, .ranks_per_node = 1};
  const RanksCall few(shape, Routes::uniform, 1, {5, 9});
  const RanksCall many(shape, Routes::holes, 2, {600, 570});
  on_every_rank(ranks_on(Device::cuda(0), shape), [&](const Communicator& communicator) {
    ExchangeRank rank(communicator, shape);
    for (const int max_sms : {1, 2, 1 + communicator.rank(), 2 - communicator.rank(), 0}) {
      rank.max_sms = max_sms;
      for (const RanksCall* call : {&few, &many}) rank.run(*call);
    }
    communicator.barrier();
  });
}

}  // namespace
}  // namespace moelink::test

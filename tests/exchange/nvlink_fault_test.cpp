// Ranks that stay away, disagree, or call out of order: what the others get, and when.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "exchange/nvlink_calls.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = 300ms;
const RanksShape kShape{.num_ranks = 3, .num_experts = 6, .hidden = 16, .max_tokens = 4};

/// Whoever waited longest says `timeout`, the others that they were told: `peer`.
template <class Body>
void expect_missing(const std::vector<std::string>& words, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::timeout || error.code() == ErrorCode::peer) << error.what();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << "'" << word << "' in: " << error.what();
    }
  }
}

/// The error of `body`, whose sentence has all of `words`.
template <class Body>
void expect_error(ErrorCode code, const std::vector<std::string>& words, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << "'" << word << "' in: " << error.what();
    }
  }
}

/// On one node, and on nodes of one or two ranks.
class RanksFault : public ::testing::TestWithParam<int> {
 protected:
  RanksShape shape = [] {
    RanksShape of_test = kShape;
    of_test.ranks_per_node = GetParam();
    return of_test;
  }();
  std::vector<RanksCall> calls = clean_calls(shape, 2);
  std::vector<Communicator> communicators = ranks_on(Device::host(), shape, kDeadline);
};
INSTANTIATE_TEST_SUITE_P(PerNode, RanksFault, ::testing::Values(0, 1, 2));

TEST_P(RanksFault, RankThatNeverDispatchesIsNamedWithinTheDeadline) {
  auto loops = on_every_rank(communicators, [&](const Communicator& communicator) {
    return std::make_unique<CallLoop>(communicator, shape, calls);
  });
  const auto start = Clock::now();
  for (const int rank : {0, 1}) loops[rank]->enqueue(0, 0, false);
  for (const int rank : {0, 1}) {
    expect_missing({"rank 2", "dispatch_receive"}, [&] { (void)loops[rank]->count_wrong(); });
  }
  EXPECT_LT(Clock::now() - start, 4 * kDeadline);
  // Terminal, and known to everybody at once.
  expect_missing({"rank 2"}, [&] { loops[0]->enqueue(1, 0, false); });
  EXPECT_THROW(loops[2]->enqueue(0, 0, false), Error);
}

TEST_P(RanksFault, RankThatDispatchesButNeverCombinesIsNamed) {
  auto loops = on_every_rank(communicators, [&](const Communicator& communicator) {
    return std::make_unique<CallLoop>(communicator, shape, calls);
  });
  const RanksCall& call = calls[0];
  const reference::SourceInput& from = call.in.sources[2];
  const std::vector<std::int32_t> ids(from.ids.begin(), from.ids.end());
  (void)loops[2]->exchange.dispatch(
      {.tokens = {.data = call.tokens[2].data(), .rows = from.num_tokens, .columns = kShape.hidden},
       .expert_ids = {.data = ids.data()},
       .weights = from.weights.data()},
      loops[2]->stream);
  for (const int rank : {0, 1}) loops[rank]->enqueue(0, 0, false);
  for (const int rank : {0, 1}) {
    expect_missing({"rank 2", "combine_receive"}, [&] { (void)loops[rank]->count_wrong(); });
  }
  loops[2]->stream.synchronize();
}

TEST_P(RanksFault, SixtyQueuedCallsDoNotWaitSixtyDeadlines) {
  auto loops = on_every_rank(communicators, [&](const Communicator& communicator) {
    return std::make_unique<CallLoop>(communicator, shape, calls);
  });
  const auto start = Clock::now();
  for (std::size_t i = 0; i < 60; ++i) loops[0]->enqueue(0, i, i % 2 == 0);
  loops[0]->stream.synchronize();
  EXPECT_LT(Clock::now() - start, 4 * kDeadline);
  EXPECT_THROW(loops[0]->exchange.check(), Error);
}

/// One object after the other on one stream, then a call that all ranks must come to; nobody calls check().
TEST_P(RanksFault, ObjectsBehindEachOtherAndACollectiveCallWaitOneDeadline) {
  constexpr auto kLonger = 1s;
  const auto group = ranks_on(Device::host(), shape, kLonger);
  using Loops = std::vector<std::unique_ptr<CallLoop>>;
  auto loops = on_every_rank(group, [&](const Communicator& communicator) {
    const auto stream = std::make_shared<Stream>(Device::host(), Stream::Options{.num_threads = 1});
    Loops of_rank;
    for (int i = 0; i < 4; ++i) of_rank.push_back(std::make_unique<CallLoop>(communicator, shape, calls, stream));
    return of_rank;
  });
  on_every_rank(group, [&](const Communicator& communicator) {
    if (communicator.rank() == 2) return;
    const Loops& mine = loops[static_cast<std::size_t>(communicator.rank())];
    const auto start = Clock::now();
    for (const auto& loop : mine) loop->enqueue(0, 0, false);
    mine.front()->stream.synchronize();
    expect_missing({"rank 2", "dispatch_receive"}, [&] { communicator.barrier(); });
    EXPECT_LT(Clock::now() - start, 2 * kLonger);
  });
}

TEST_P(RanksFault, ConfigurationsThatDifferAreRefusedOnEveryRank) {
  on_every_rank(communicators, [&](const Communicator& communicator) {
    ExchangeConfig config = shape.config();
    if (communicator.rank() == 1) config.max_tokens = 5;
    expect_error(ErrorCode::mismatch, {"rank 1", "max_tokens", "5", "4"},
                 [&] { const Exchange exchange(communicator, config); });
  });
}

TEST(NvlinkFault, MembersOfAGroupThatPassOtherIdsAreAMismatch) {
  const RanksShape shape{.num_ranks = 2, .tp_size = 2, .hidden = 16, .max_tokens = 4};
  const auto group = ranks_on(Device::host(), 2, kDeadline);
  const RanksCall one(shape, Routes::uniform, 1, {4});
  const RanksCall other(shape, Routes::uniform, 2, {4});
  on_every_rank(group, [&](const Communicator& communicator) {
    const std::vector<RanksCall> mine{communicator.rank() == 0 ? one : other};
    CallLoop loop(communicator, shape, mine);
    loop.enqueue(0, 0, false);
    loop.stream.synchronize();
    expect_error(ErrorCode::mismatch, {"rank 0", "rank 1", "dispatch_receive"}, [&] { loop.exchange.check(); });
  });
}

TEST_P(RanksFault, ExpertOutputsOfTypesThatDifferAreAMismatchThatSaysSo) {
  on_every_rank(communicators, [&](const Communicator& communicator) {
    ExchangeConfig config = shape.config();
    config.combine_types = {{.expert_output = DataType::bfloat16}, {.expert_output = DataType::float16}};
    RanksShape mine = shape;
    mine.combine = config.combine_types[communicator.rank() == 1 ? 1 : 0];
    ExchangeRank rank(communicator, mine, Exchange(communicator, config), 1);
    rank.load(RanksCall(mine, Routes::uniform, 1, {4, 4, 4}));
    rank.enqueue();
    rank.stream.synchronize();
    expect_error(ErrorCode::mismatch, {"rank 1", "expert outputs of another type"}, [&] { rank.exchange.check(); });
  });
}

TEST_P(RanksFault, CallsOutOfOrderAreRefusedAndHarmNothing) {
  on_every_rank(ranks_on(Device::host(), shape), [&](const Communicator& communicator) {
    ExchangeRank rank(communicator, shape);
    rank.load(calls[0]);
    const DispatchArgs dispatch = rank.dispatch_args();
    const CombineArgs combine = rank.combine_args();
    expect_error(ErrorCode::out_of_order, {"combine"}, [&] { rank.exchange.combine(combine, rank.stream); });
    DispatchTicket ticket = rank.exchange.dispatch_send(dispatch, rank.stream);
    expect_error(ErrorCode::out_of_order, {"dispatch"}, [&] { (void)rank.exchange.dispatch(dispatch, rank.stream); });
    expect_error(ErrorCode::out_of_order, {"combine"}, [&] { rank.exchange.combine(combine, rank.stream); });
    DispatchTicket moved = std::move(ticket);
    expect_error(ErrorCode::out_of_order, {"moved"}, [&] {
      (void)rank.exchange.dispatch_receive(std::move(ticket), rank.stream);  // NOLINT(bugprone-use-after-move)
    });
    rank.batch = rank.exchange.dispatch_receive(std::move(moved), rank.stream);
    CombineTicket sent = rank.exchange.combine_send(combine, rank.stream);
    expect_error(ErrorCode::out_of_order, {"dispatch"}, [&] { (void)rank.exchange.dispatch(dispatch, rank.stream); });
    rank.exchange.combine_receive(std::move(sent), rank.stream);
    rank.expect(calls[0]);
    rank.run(calls[1]);
    communicator.barrier();
  });
}

TEST_P(RanksFault, ArgumentsThatOneRankRefusesLeaveTheNextCallRight) {
  on_every_rank(ranks_on(Device::host(), shape), [&](const Communicator& communicator) {
    ExchangeRank rank(communicator, shape);
    rank.load(calls[0]);
    if (communicator.rank() == 1) {
      DispatchArgs args = rank.dispatch_args();
      args.tokens.columns = 8;
      EXPECT_THROW((void)rank.exchange.dispatch(args, rank.stream), Error);
      args = rank.dispatch_args();
      args.tokens.rows = kShape.max_tokens + 1;
      expect_error(ErrorCode::capacity, {"max_tokens"}, [&] { (void)rank.exchange.dispatch(args, rank.stream); });
    }
    rank.enqueue();
    rank.expect(calls[0]);
    communicator.barrier();
  });
}

TEST_P(RanksFault, TooManyTokensForThirtyTwoBitsAreRefusedBeforeAnythingIsAllocated) {
  on_every_rank(communicators, [&](const Communicator& communicator) {
    ExchangeConfig config = shape.config();
    config.top_k = 32;
    config.max_tokens = 60'000'000;
    config.max_rows = 64;
    expect_error(ErrorCode::invalid_argument, {"max_tokens", "60000000"},
                 [&] { (void)Exchange::memory(communicator, config); });
  });
}

}  // namespace
}  // namespace moelink::test

#include "moelink/communicator.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "comm/expect_error.hpp"

namespace moelink {
namespace {

using namespace std::chrono_literals;
using testing::expect_error;

TEST(Communicator, SingleIsAGroupOfOneThatNeverWaits) {
  const auto comm = Communicator::single(Device::host());
  EXPECT_EQ(comm.rank(), 0);
  EXPECT_EQ(comm.size(), 1);
  comm.barrier();
  const std::vector<std::byte> mine(3, std::byte{7});
  EXPECT_EQ(comm.all_gather(mine), std::vector<std::vector<std::byte>>(1, mine));
}

TEST(Communicator, InProcessRanksSeeOneProcessAndOneNode) {
  const auto ranks = Communicator::in_process(5);
  ASSERT_EQ(ranks.size(), 5U);
  for (int r = 0; r < 5; ++r) {
    const auto& comm = ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(comm.rank(), r);
    EXPECT_EQ(comm.size(), 5);
    EXPECT_EQ(comm.topology().num_nodes(), 1);
    EXPECT_EQ(comm.topology().link(r, r), Link::self);
    EXPECT_EQ(comm.topology().link(r, (r + 1) % 5), Link::process);
    EXPECT_TRUE(comm.topology().same_process(0, r));
  }
  expect_error(ErrorCode::invalid_argument, {"rank 5", "0 to 4"}, [&] { (void)ranks[0].topology().rank(5); });
}

TEST(Communicator, OnEveryRankReturnsResultsInRankOrder) {
  const auto ranks = Communicator::in_process(4);
  const auto results = on_every_rank(ranks, [](const Communicator& c) {
    c.barrier();
    return c.rank() * 10;
  });
  EXPECT_EQ(results, (std::vector{0, 10, 20, 30}));
}

TEST(Communicator, RankThatFailsReleasesTheOthersWithItsWords) {
  const auto ranks = Communicator::in_process(3);
  const auto start = std::chrono::steady_clock::now();
  expect_error(ErrorCode::invalid_argument, {"rank one is unhappy"}, [&] {
    on_every_rank(ranks, [](const Communicator& c) {
      if (c.rank() == 1) {
        throw Error(ErrorCode::invalid_argument, "rank one is unhappy");
      }
      expect_error(ErrorCode::peer, {"rank 1", "rank one is unhappy"}, [&] { c.barrier(); });
    });
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(Communicator, RefusalOnEveryRankLeavesTheGroupUsable) {
  const auto ranks = Communicator::in_process(3);
  expect_error(ErrorCode::invalid_argument, {"bad"}, [&] {
    on_every_rank(ranks, [](const Communicator&) { throw Error(ErrorCode::invalid_argument, "bad"); });
  });
  on_every_rank(ranks, [](const Communicator& c) { c.barrier(); });
}

TEST(Communicator, AbortFromAnotherThreadIsTerminalOnEveryRank) {
  const auto ranks = Communicator::in_process(4);
  std::thread aborter([&] { ranks[2].abort("operator pressed the button"); });
  on_every_rank(ranks, [](const Communicator& c) {
    expect_error(ErrorCode::aborted, {"rank 2", "operator pressed the button"}, [&] {
      for (;;) {
        c.barrier();
      }
    });
    expect_error(ErrorCode::aborted, {"rank 2"}, [&] { c.check(); });
  });
  aborter.join();
}

TEST(Communicator, LateRankIsAnErrorAfterTheDeadline) {
  const auto ranks = Communicator::in_process(2, {.deadline = 50ms});
  on_every_rank(ranks, [](const Communicator& c) {
    if (c.rank() == 1) {
      std::this_thread::sleep_for(300ms);
    }
    expect_error(ErrorCode::timeout, {"rank 1 of 2", "50 ms"}, [&] { c.barrier(); });
  });
}

TEST(Communicator, BadArgumentsAreNamed) {
  expect_error(ErrorCode::invalid_argument, {"0 ranks"}, [] { (void)Communicator::in_process(0); });
  expect_error(ErrorCode::invalid_argument, {"device 99"},
               [] { (void)Communicator::in_process(2, {.devices = {99}}); });
  expect_error(ErrorCode::invalid_argument, {"-1 ms"}, [] { (void)Communicator::in_process(2, {.deadline = -1ms}); });
}

TEST(Topology, TablePrintsRanksAndLinks) {
  const auto ranks = Communicator::in_process(2);
  const std::string table = ranks[0].topology().to_string();
  for (const char* word : {"rank", "node", "host", "from\\to", "self", "process"}) {
    EXPECT_NE(table.find(word), std::string::npos) << word << " is not in:\n" << table;
  }
}

TEST(Communicator, MovedFromSaysSo) {
  auto gone = Communicator::single(Device::host());
  const auto kept = std::move(gone);
  expect_error(ErrorCode::out_of_order, {"Communicator was moved from"}, [&] { (void)gone.rank(); });
  expect_error(ErrorCode::out_of_order, {"Communicator was moved from"}, [&] { gone.barrier(); });
  gone.abort("nobody hears it");
  EXPECT_NO_THROW(kept.check());
}

TEST(Communicator, MoreRanksThanCanBeServedAreRefusedBeforeAnythingIsAllocated) {
  for (const int size : {1025, std::numeric_limits<int>::max()}) {
    expect_error(ErrorCode::invalid_argument, {std::to_string(size), "1024"},
                 [&] { (void)Communicator::in_process(size); });
  }
  expect_error(ErrorCode::invalid_argument, {"65536"},
               [] { const Communicator comm(0, std::numeric_limits<int>::max(), [](auto, auto) {}); });
}

TEST(OnEveryRank, CauseIsThrownAgainNotWhatFollowedFromIt) {
  for (int round = 0; round < 20; ++round) {
    const auto ranks = Communicator::in_process(4, {.deadline = 10s});
    EXPECT_THROW(on_every_rank(ranks,
                               [](const Communicator& comm) {
                                 if (comm.rank() == 1) throw std::out_of_range("the cause");
                                 comm.barrier();
                               }),
                 std::out_of_range);
  }
}

TEST(Topology, LinksThatAreNoSquareAreRefused) {
  expect_error(ErrorCode::invalid_argument, {"2 by 2"}, [] {
    const Topology topology({RankInfo{}, RankInfo{}}, {{Link::self}});
  });
}

}  // namespace
}  // namespace moelink

#include "comm/thread_bootstrap.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "comm/agree.hpp"
#include "comm/expect_error.hpp"
#include "comm/run_threads.hpp"

namespace moelink {
namespace {

using namespace std::chrono_literals;
using testing::expect_error;

constexpr auto kDeadline = 10s;
constexpr auto kShort = 100ms;

/// Runs body(bootstrap) for each member on a thread of its own.
template <class Body>
void on_members(std::vector<std::unique_ptr<ThreadBootstrap>>& members, Body body) {
  run_threads(members.size(), [&](std::size_t r) { body(*members[r]); });
}

class ThreadBootstrapSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadBootstrapSizes, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8));

TEST_P(ThreadBootstrapSizes, RoundsOfDifferentLengthsDoNotMix) {
  auto members = ThreadBootstrap::make_group(GetParam());
  on_members(members, [](Bootstrap& b) {
    for (int round = 0; round < 200; ++round) {
      // Rank r sends r bytes that tell round and rank.
      const Bytes mine(static_cast<std::size_t>(b.rank()), static_cast<std::byte>(round * 8 + b.rank()));
      const auto all = b.all_gather("round", mine, kDeadline);
      ASSERT_EQ(all.size(), static_cast<std::size_t>(b.size()));
      for (int r = 0; r < b.size(); ++r) {
        const auto& theirs = all[static_cast<std::size_t>(r)];
        EXPECT_EQ(theirs, Bytes(static_cast<std::size_t>(r), static_cast<std::byte>(round * 8 + r)));
      }
    }
  });
}

TEST(ThreadBootstrap, MissingRankIsNamedOnEveryOther) {
  auto members = ThreadBootstrap::make_group(4);
  on_members(members, [](Bootstrap& b) {
    if (b.rank() != 2) {
      expect_error(ErrorCode::timeout, {"'meet'", "rank 2 of 4", "100 ms"}, [&] { b.barrier("meet", kShort); });
      expect_error(ErrorCode::timeout, {"rank 2"}, [&] { b.barrier("again", kDeadline); });
    }
  });
  EXPECT_TRUE(members[2]->faults().raised());
}

TEST(ThreadBootstrap, DifferentCallsAreAMismatchNotEachOthersData) {
  auto members = ThreadBootstrap::make_group(2);
  on_members(members, [](Bootstrap& b) {
    expect_error(ErrorCode::mismatch, {"'left'", "'right'", "rank 0", "rank 1"},
                 [&] { b.barrier(b.rank() == 0 ? "left" : "right", kDeadline); });
  });
}

TEST(ThreadBootstrap, LoopOverRanksInOneThreadIsRefusedNotBlocked) {
  auto members = ThreadBootstrap::make_group(2);
  const auto start = std::chrono::steady_clock::now();
  expect_error(ErrorCode::out_of_order, {"on_every_rank"}, [&] { members[0]->barrier("loop", kDeadline); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline / 2);
}

TEST(ThreadBootstrap, RankThatLeftIsNamedToThoseWhoWait) {
  auto members = ThreadBootstrap::make_group(3);
  run_threads(3, [&](std::size_t r) {
    if (r == 1) {
      members[1].reset();
      return;
    }
    expect_error(ErrorCode::peer, {"rank 1", "has left"}, [&] { members[r]->barrier("farewell", kDeadline); });
  });
}

TEST(ThreadBootstrap, LeavingAfterTheLastRoundHarmsNobody) {
  auto members = ThreadBootstrap::make_group(3);
  run_threads(3, [&](std::size_t r) {
    members[r]->barrier("last", kDeadline);
    members[r].reset();
  });
}

TEST(ThreadBootstrap, AbortReleasesWaitersAtOnce) {
  auto members = ThreadBootstrap::make_group(4);
  const auto start = std::chrono::steady_clock::now();
  on_members(members, [](Bootstrap& b) {
    if (b.rank() == 3) {
      std::this_thread::sleep_for(20ms);
      b.abort({ErrorCode::aborted, 3, "enough"});
    } else {
      expect_error(ErrorCode::aborted, {"enough"}, [&] { b.barrier("wait", kDeadline); });
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline / 2);
}

TEST(ThreadBootstrap, FirstFaultWinsAndListenersHearItOnce) {
  auto members = ThreadBootstrap::make_group(2);
  std::atomic<int> heard{0};
  {
    const auto subscription = members[0]->faults().subscribe([&](const GroupFault& fault) {
      EXPECT_EQ(fault.sentence, "first");
      ++heard;
    });
    members[1]->abort({ErrorCode::aborted, 1, "first"});
    members[0]->abort({ErrorCode::aborted, 0, "second"});
  }
  EXPECT_EQ(heard, 1);
  const auto late = members[0]->faults().subscribe([&](const GroupFault&) { ++heard; });
  EXPECT_EQ(heard, 2) << "a listener that comes after the fault must hear of it";
}

TEST(ThreadBootstrap, OversizeContributionReleasesTheOthers) {
  auto members = ThreadBootstrap::make_group(2);
  on_members(members, [](Bootstrap& b) {
    const Bytes mine(b.rank() == 0 ? kMaxContributionBytes + 1 : 1);
    expect_error(ErrorCode::invalid_argument, {"rank 0", "1048577", "1048576"},
                 [&] { (void)b.all_gather("big", mine, kDeadline); });
  });
}

TEST(CompareOverRanks, DifferenceNamesRankFieldAndBothValuesOnEveryRank) {
  auto members = ThreadBootstrap::make_group(3);
  on_members(members, [](Bootstrap& b) {
    const std::string tokens = b.rank() == 2 ? "64" : "128";
    expect_error(ErrorCode::mismatch, {"Exchange: rank 2 has max_tokens = 64 where rank 0 has 128"}, [&] {
      compare_over_ranks(b, "Exchange", {{"experts", "8"}, {"max_tokens", tokens}}, kDeadline);
    });
    // A mismatch is no fault: the group can go on.
    compare_over_ranks(b, "Exchange", {{"experts", "8"}}, kDeadline);
  });
}

TEST(CompareOverRanks, MissingFieldIsADifference) {
  auto members = ThreadBootstrap::make_group(2);
  on_members(members, [](Bootstrap& b) {
    std::vector<ConfigField> fields = {{"experts", "8"}};
    if (b.rank() == 1) {
      fields.push_back({"extra", "1"});
    }
    expect_error(ErrorCode::mismatch, {"rank 1 has extra = 1 where rank 0 has nothing"},
                 [&] { compare_over_ranks(b, "x", fields, kDeadline); });
  });
}

TEST(AgreeOverRanks, RefusalOnOneRankIsAnErrorOnAllAndNoFault) {
  auto members = ThreadBootstrap::make_group(3);
  on_members(members, [](Bootstrap& b) {
    const auto refuse_on_1 = [&] {
      if (b.rank() == 1) {
        throw Error(ErrorCode::invalid_argument, "no such device");
      }
    };
    expect_error(b.rank() == 1 ? ErrorCode::invalid_argument : ErrorCode::peer, {"no such device"},
                 [&] { agree_over_ranks(b, "open", refuse_on_1, kDeadline); });
    agree_over_ranks(
        b, "close", [] {}, kDeadline);
  });
}

/// Rank 2 never comes; ranks 0 and 1 have waited for it in a way of their own. With another kDeadline for the agreement
/// this would last until then.
TEST(ThreadBootstrap, StepThatWaitedInVainDoesNotWaitAgainForTheSameRank) {
  auto members = ThreadBootstrap::make_group(3);
  const auto start = std::chrono::steady_clock::now();
  on_members(members, [](Bootstrap& b) {
    if (b.rank() == 2) return;
    const auto wait = [&] {
      if (b.rank() == 0) throw Error(ErrorCode::timeout, "no descriptor of rank 2");
    };
    expect_error(ErrorCode::timeout, {"no descriptor of rank 2"}, [&] { agree_over_ranks(b, "map", wait, kDeadline); });
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline / 2);
}

}  // namespace
}  // namespace moelink

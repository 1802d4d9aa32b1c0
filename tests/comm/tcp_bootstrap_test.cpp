// Ranks that meet over TCP and behave.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "comm/expect_error.hpp"
#include "comm/loopback_group.hpp"
#include "comm/process_traces.hpp"

namespace moelink {
namespace {

using namespace std::chrono_literals;
using testing::Door;
using testing::expect_error;
using testing::meet;
using testing::on_loopback;

constexpr auto kDeadline = 20s;

Bytes part_of(int rank, int round) {
  return Bytes(static_cast<std::size_t>(rank * 100), static_cast<std::byte>(round * 8 + rank));
}

class TcpBootstrapSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, TcpBootstrapSizes, ::testing::Values(2, 3, 4, 5, 6, 7, 8));

TEST_P(TcpBootstrapSizes, RoundsOfDifferentLengthsDoNotMix) {
  on_loopback(GetParam(), [](Bootstrap& b) {
    for (int round = 0; round < 30; ++round) {
      const auto all = b.all_gather("round", part_of(b.rank(), round), kDeadline);
      ASSERT_EQ(all.size(), static_cast<std::size_t>(b.size()));
      for (int r = 0; r < b.size(); ++r) {
        EXPECT_EQ(all[static_cast<std::size_t>(r)], part_of(r, round));
      }
    }
  });
}

TEST(TcpBootstrap, LongestContributionsArriveWhole) {
  on_loopback(3, [](Bootstrap& b) {
    const auto all = b.all_gather("long", Bytes(kMaxContributionBytes, static_cast<std::byte>(b.rank())), kDeadline);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(all[r], Bytes(kMaxContributionBytes, static_cast<std::byte>(r)));
    }
  });
}

TEST(TcpBootstrap, WorksOverIpv6) {
  try {
    const Door probe("::1");
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 loopback: " << error.what();
  }
  on_loopback(
      3, [](Bootstrap& b) { b.barrier("v6", kDeadline); }, "::1");
}

TEST(TcpBootstrap, NoDescriptorAndNoThreadIsLeft) {
  const testing::Traces before;
  on_loopback(4, [](Bootstrap& b) { b.barrier("once", kDeadline); });
  EXPECT_TRUE(testing::back_to(before));
}

TEST(TcpBootstrap, PortIsFreeForTheNextGroupAtOnce) {
  Door door;
  const SocketAddress address = door.address;
  run_threads(3, [&](std::size_t r) {
    const auto first = meet(door, {static_cast<int>(r), {3, 1, ""}, kDeadline});
    Door again;
    if (r == 0) {
      again.listener = listen_at(address);
    }
    again.address = address;
    const auto second = meet(again, {static_cast<int>(r), {3, 2, ""}, kDeadline});
    second->barrier("second", kDeadline);
    first->barrier("first", kDeadline);
  });
}

TEST(TcpBootstrap, MissingRankIsNamedOnEveryRankInTime) {
  Door door;
  const auto start = std::chrono::steady_clock::now();
  run_threads(3, [&](std::size_t i) {
    const int rank = i == 2 ? 3 : static_cast<int>(i);  // rank 2 of 4 never comes
    expect_error(ErrorCode::timeout, {"rank 2 of 4 did not join"}, [&] {
      (void)meet(door, {rank, {4, 1, ""}, 300ms});
    });
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 300ms + 1s);
}

TEST(TcpBootstrap, MissingRank0IsNamedWithTheObstacle) {
  Door door;
  door.listener.reset();
  expect_error(ErrorCode::timeout, {"rank 1 did not reach rank 0", "Connection refused", "200 ms"}, [&] {
    (void)meet(door, {1, {2, 1, ""}, 200ms});
  });
}

TEST(TcpBootstrap, RankThatDoesNotArriveIsNamedOnEveryRank) {
  on_loopback(4, [](Bootstrap& b) {
    if (b.rank() == 2) {
      for (int i = 0; i < 500 && !b.faults().raised(); ++i) {
        std::this_thread::sleep_for(10ms);
      }
      expect_error(ErrorCode::timeout, {"rank 2 of 4"}, [&] { b.faults().check(); });
    } else {
      expect_error(ErrorCode::timeout, {"'meet'", "rank 2 of 4", "200 ms"}, [&] { b.barrier("meet", 200ms); });
    }
  });
}

TEST(TcpBootstrap, DifferentCallsAreAMismatch) {
  on_loopback(2, [](Bootstrap& b) {
    expect_error(ErrorCode::mismatch, {"'left'", "'right'"},
                 [&] { b.barrier(b.rank() == 0 ? "left" : "right", kDeadline); });
  });
}

TEST(TcpBootstrap, AbortReachesEveryRankAlsoThoseThatDoNotWait) {
  on_loopback(4, [](Bootstrap& b) {
    if (b.rank() == 1) {
      b.abort({ErrorCode::aborted, 1, "enough"});
    }
    for (int i = 0; i < 500 && !b.faults().raised(); ++i) {
      std::this_thread::sleep_for(10ms);
    }
    expect_error(ErrorCode::aborted, {"enough"}, [&] { b.faults().check(); });
    expect_error(ErrorCode::aborted, {"enough"}, [&] { b.barrier("after", kDeadline); });
  });
}

class TcpBootstrapLeaving : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TcpBootstrapLeaving, ::testing::Values(0, 1));

TEST_P(TcpBootstrapLeaving, RankThatLeftIsNamedToThoseWhoNeedIt) {
  Door door;
  const int leaver = GetParam();
  run_threads(3, [&](std::size_t r) {
    auto b = meet(door, {static_cast<int>(r), {3, 1, ""}, kDeadline});
    if (static_cast<int>(r) != leaver) {
      const std::string name = "rank " + std::to_string(leaver);
      expect_error(ErrorCode::peer, {name, "has left"}, [&] { b->barrier("farewell", kDeadline); });
    }
  });
}

TEST(TcpBootstrap, LeavingOneAfterTheOtherHarmsNobody) {
  Door door;
  run_threads(4, [&](std::size_t r) {
    auto b = meet(door, {static_cast<int>(r), {4, 1, ""}, kDeadline});
    b->barrier("last", kDeadline);
    std::this_thread::sleep_for(r * 10ms);  // rank 0, and its hub, first
    EXPECT_FALSE(b->faults().raised());
  });
}

TEST(TcpBootstrap, OversizeContributionReleasesTheOthers) {
  on_loopback(3, [](Bootstrap& b) {
    const Bytes mine(b.rank() == 1 ? kMaxContributionBytes + 1 : 1);
    expect_error(ErrorCode::invalid_argument, {"rank 1", "1048577"},
                 [&] { (void)b.all_gather("big", mine, kDeadline); });
  });
}

}  // namespace
}  // namespace moelink

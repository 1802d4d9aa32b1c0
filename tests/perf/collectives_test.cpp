// What baselines move rows with, between threads of this process; and why ranks may not have it.
#include "perf/collectives/collectives.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "moelink/buffer.hpp"
#include "perf/moe/link_limit.hpp"

namespace moelink::perf {
namespace {

constexpr int kRanks = 3;

/// Runs `body(rank, collectives, stream, team)` on every rank.
template <class Body>
void on_ranks(Body&& body) {
  on_every_rank(Communicator::in_process(kRanks), [&](const Communicator& communicator) {
    Team team(2);
    const Stream stream(Device::host(), {.num_threads = 1});
    std::string reason;
    const auto collectives = make_collectives(CollectivesKind::best, "", communicator, stream, team, reason);
    ASSERT_NE(collectives, nullptr) << reason;
    body(communicator.rank(), *collectives);
  });
}

TEST(Collectives, AllGatherHasEveryRanksBytesAlsoLongOnesAndAgain) {
  on_ranks([](int rank, Collectives& collectives) {
    for (const std::int64_t bytes : {1, 5, 300'000}) {
      const std::vector<std::uint8_t> mine(static_cast<std::size_t>(bytes), static_cast<std::uint8_t>(10 + rank));
      std::vector<std::uint8_t> all(static_cast<std::size_t>(bytes * kRanks));
      collectives.all_gather(mine.data(), all.data(), bytes);
      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], 10 + i / mine.size());
    }
  });
}

TEST(Collectives, ReduceScatterGivesEachRankItsSums) {
  on_ranks([](int rank, Collectives& collectives) {
    constexpr std::int64_t kCount = 70'000;  // more than one piece of a thread
    std::vector<float> all(kCount * kRanks);
    std::iota(all.begin(), all.end(), static_cast<float>(1000 * rank));
    std::vector<float> mine(kCount);
    for (int again = 0; again < 2; ++again) {
      collectives.reduce_scatter(all.data(), mine.data(), kCount, DataType::float32);
      for (std::int64_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(mine[static_cast<std::size_t>(i)], static_cast<float>(3 * (rank * kCount + i) + 3000));
      }
    }
  });
}

TEST(Collectives, AllToAllBringsEachRankWhatIsMeantForIt) {
  on_ranks([](int rank, Collectives& collectives) {
    for (int again = 0; again < 2; ++again) {
      std::vector<std::int64_t> out;
      for (int peer = 0; peer < kRanks; ++peer) out.push_back(100 * rank + 10 * peer + again);
      std::vector<std::int64_t> in(kRanks, -1);
      collectives.all_to_all(out.data(), in.data(), sizeof(std::int64_t));
      for (int peer = 0; peer < kRanks; ++peer)
        EXPECT_EQ(in[static_cast<std::size_t>(peer)], 100 * peer + 10 * rank + again);
    }
  });
}

TEST(Collectives, ExchangeBringsEachSourcesRowsInItsOrderAlsoNone) {
  on_ranks([](int rank, Collectives& collectives) {
    // Rank a sends a * b rows to rank b, each with both their numbers.
    RankRows sent;
    RankRows received;
    std::vector<std::int32_t> out;
    for (int peer = 0; peer < kRanks; ++peer) {
      sent.counts.push_back(rank * peer);
      received.counts.push_back(peer * rank);
      for (int row = 0; row < rank * peer; ++row) out.push_back(100 * rank + 10 * peer + row);
    }
    std::vector<std::int32_t> in(static_cast<std::size_t>(received.total()), -1);
    collectives.exchange(out.data(), sent, in.data(), received, sizeof(std::int32_t));
    std::size_t at = 0;
    for (int peer = 0; peer < kRanks; ++peer) {
      for (int row = 0; row < rank * peer; ++row) EXPECT_EQ(in[at++], 100 * peer + 10 * rank + row);
    }
    EXPECT_EQ(at, in.size());
  });
}

TEST(Collectives, WhatRanksCannotHaveIsNullWithTheReasonOnAllOfThem) {
  on_every_rank(Communicator::in_process(kRanks), [](const Communicator& communicator) {
    Team team(1);
    const Stream stream(Device::host(), {.num_threads = 1});
    std::string reason;
    EXPECT_EQ(make_collectives(CollectivesKind::nccl, "", communicator, stream, team, reason), nullptr);
    EXPECT_NE(reason.find("NCCL"), std::string::npos) << reason;
    reason.clear();
    EXPECT_EQ(make_collectives(CollectivesKind::mpi, "ucx", communicator, stream, team, reason), nullptr);
    EXPECT_NE(reason.find("MPI"), std::string::npos) << reason;
  });
}

TEST(LinkLimit, RanksOfAProcessStoreToEachOther) {
  on_every_rank(Communicator::in_process(kRanks), [](const Communicator& communicator) {
    Team team(1);
    const Stream stream(Device::host(), {.num_threads = 1});
    LinkLimit link(communicator, stream, team);
    EXPECT_EQ(link.reason(), "");
    const auto works = link.prepare({0, 100'000}, 3);
    ASSERT_EQ(works.size(), 2U);
    EXPECT_EQ(works[0].scale, 0);
    EXPECT_NEAR(works[1].scale, 100'000.0 / 98'304, 1e-9);  // six rows of 16 KiB
    EXPECT_EQ(works[1].work.num_calls, 3);
    for (const CopyWork& work : works) work.work.enqueue();
    communicator.barrier();
  });
}

TEST(LinkLimit, OneRankHasNoLink) {
  Team team(1);
  const Stream stream(Device::host(), {.num_threads = 1});
  LinkLimit link(Communicator::single(Device::host()), stream, team);
  EXPECT_NE(link.reason(), "");
  EXPECT_TRUE(link.prepare({16}, 1).empty());
}

}  // namespace
}  // namespace moelink::perf

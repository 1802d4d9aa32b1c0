#include <gtest/gtest.h>

#include "moelink/error.hpp"
#include "ranks.hpp"
#include "transports/peer_group.hpp"
#include "transports/symmetric_buffer.hpp"

namespace moelink::test {
namespace {

TEST(AllocateInProcess, OneThreadMakesTheBuffersOfAllRanks) {
  const std::vector<InProcessRank> ranks(6);
  std::vector<SymmetricBuffer> buffers = allocate_in_process(ranks, 1000);
  ASSERT_EQ(buffers.size(), 6U);
  for (int rank = 0; rank < 6; ++rank) {
    const Window& window = buffers[static_cast<std::size_t>(rank)].window();
    EXPECT_EQ(window.rank, rank);
    EXPECT_EQ(window.num_ranks, 6);
    EXPECT_EQ(window.size_bytes, 1000);
    for (int peer = 0; peer < 6; ++peer) {
      EXPECT_EQ(reinterpret_cast<std::byte*>(window.base(peer)), buffers[static_cast<std::size_t>(peer)].data());
    }
  }
  // Rank 0 leaves first; rank 5 may still write its memory.
  std::byte* data = buffers[0].data();
  buffers[0] = SymmetricBuffer();
  data[999] = std::byte{1};
  EXPECT_EQ(*buffers[5].window().at<unsigned char>(0, 999), 1);
}

TEST(AllocateInProcess, RanksOfAnotherNodeAreNotMapped) {
  const std::vector<InProcessRank> ranks{{Device::host(), 0}, {Device::host(), 1}, {Device::host(), 0}};
  const std::vector<SymmetricBuffer> buffers = allocate_in_process(ranks, 64);
  EXPECT_EQ(buffers[0].window().base(1), nullptr);
  EXPECT_NE(buffers[0].window().base(2), nullptr);
  EXPECT_EQ(buffers[1].window().base(0), nullptr);
  EXPECT_NE(buffers[1].window().base(1), nullptr);
}

TEST(AllocateInProcess, MoreRanksThanFitInAWindowUseTheTable) {
  const std::vector<InProcessRank> ranks(kMaxInlineRanks + 5);
  const std::vector<SymmetricBuffer> buffers = allocate_in_process(ranks, 64);
  for (const SymmetricBuffer& buffer : buffers) {
    ASSERT_NE(buffer.window().table, nullptr);
    for (std::size_t peer = 0; peer < ranks.size(); ++peer) {
      EXPECT_EQ(reinterpret_cast<std::byte*>(buffer.window().base(static_cast<int>(peer))), buffers[peer].data());
    }
  }
}

TEST(AllocateInProcess, NoRanksAndNoBytesAreRefused) {
  EXPECT_THROW((void)allocate_in_process({}, 64), Error);
  const std::vector<InProcessRank> ranks(2);
  EXPECT_THROW((void)allocate_in_process(ranks, 0), Error);
  EXPECT_THROW((void)allocate_in_process(ranks, ~std::size_t{0}), Error);
}

TEST(SymmetricBuffer, AnEmptyOneHasAnEmptyWindow) {
  const SymmetricBuffer buffer;
  EXPECT_EQ(buffer.window().num_ranks, 0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size_bytes(), 0U);
}

TEST(PeerGroup, RanksOfOneProcessUsePlainPointers) {
  const auto failures = run_ranks({0, 0, 0}, [](Rendezvous& meet) {
    PeerGroup group(meet, Device::host(), {});
    EXPECT_EQ(group.choice().kind, MemoryKind::threads);
    const SymmetricBuffer buffer = group.allocate(128);
    *buffer.window().at<int>((meet.rank() + 1) % 3, 0) = meet.rank() + 10;
    meet.barrier();
    EXPECT_EQ(*reinterpret_cast<int*>(buffer.data()), (meet.rank() + 2) % 3 + 10);
  });
  EXPECT_EQ(failures, std::vector<std::string>(3));
}

TEST(PeerGroup, AKindThatDoesNotExistHereIsRefusedOnEveryRankWithTheReport) {
  const auto failures = run_ranks({0, 0}, [](Rendezvous& meet) {
    PeerGroupOptions options;
    options.only = MemoryKind::vmm;
    const PeerGroup group(meet, Device::host(), options);
  });
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find("rank 0 cannot map rank 1: the ranks run on the host"), std::string::npos) << failure;
  }
}

TEST(PeerGroup, ANodeOfOneRankNeedsNobody) {
  const auto failures = run_ranks({0, 1}, [](Rendezvous& meet) {
    PeerGroup group(meet, Device::host(), {});
    const SymmetricBuffer buffer = group.allocate(128);
    EXPECT_EQ(buffer.window().base(1 - meet.rank()), nullptr);
    EXPECT_NE(buffer.window().base(meet.rank()), nullptr);
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
}

}  // namespace
}  // namespace moelink::test

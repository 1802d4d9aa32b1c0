#include "memory_conformance.hpp"

namespace moelink::test {

TEST_P(MemoryConformance, EveryRankSeesWhatEveryOtherWrites) {
  for (const int ranks : {1, 2, 3, 8}) {
    run(ranks, [&](Rendezvous& meet, std::shared_ptr<MemoryTransport> transport) {
      const SymmetricBuffer buffer = allocate(meet, std::move(transport), 4096);
      const Window& window = buffer.window();
      for (int peer = 0; peer < ranks; ++peer) {
        write(window, peer, meet.rank(), static_cast<std::uint32_t>(1000 * (meet.rank() + 1) + peer));
      }
      meet.barrier();
      for (int peer = 0; peer < ranks; ++peer) {
        for (int writer = 0; writer < ranks; ++writer) {
          EXPECT_EQ(read(window, peer, writer), static_cast<std::uint32_t>(1000 * (writer + 1) + peer));
        }
      }
      meet.barrier();
    });
  }
}

TEST_P(MemoryConformance, MemoryIsZeroAlsoWhereAnEarlierBufferWas) {
  for (int round = 0; round < 2; ++round) {
    run(2, [&](Rendezvous& meet, std::shared_ptr<MemoryTransport> transport) {
      const SymmetricBuffer buffer = allocate(meet, std::move(transport), 8192);
      for (int word = 0; word < 2048; word += 61) {
        EXPECT_EQ(read(buffer.window(), 1 - meet.rank(), word), 0U);
      }
      meet.barrier();
      for (int word = 0; word < 2048; word += 61) {
        write(buffer.window(), meet.rank(), word, 0xffffffffU);
      }
    });
  }
}

TEST_P(MemoryConformance, OddSizesAreAlignedAndRoundedUp) {
  run(2, [&](Rendezvous& meet, const std::shared_ptr<MemoryTransport>& transport) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{4097}, std::size_t{(1 << 21) + 5}}) {
      const SymmetricBuffer buffer = allocate(meet, transport, size);
      EXPECT_EQ(buffer.size_bytes(), size);
      EXPECT_GE(buffer.memory_bytes(), size);
      for (int peer = 0; peer < 2; ++peer) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.window().base(peer)) % 256, 0U);
      }
      EXPECT_EQ(reinterpret_cast<std::byte*>(buffer.window().base(meet.rank())), buffer.data());
    }
  });
}

TEST_P(MemoryConformance, TwoBuffersDoNotOverlapAndDieInAnyOrder) {
  run(4, [&](Rendezvous& meet, const std::shared_ptr<MemoryTransport>& transport) {
    SymmetricBuffer first = allocate(meet, transport, 4096);
    SymmetricBuffer second = allocate(meet, transport, 4096);
    for (int peer = 0; peer < 4; ++peer) {
      write(first.window(), peer, meet.rank(), 1);
      write(second.window(), peer, meet.rank(), 2);
    }
    meet.barrier();
    for (int peer = 0; peer < 4; ++peer) {
      EXPECT_EQ(read(first.window(), peer, 3 - peer), 1U);
      EXPECT_EQ(read(second.window(), peer, 3 - peer), 2U);
    }
    meet.barrier();
    if (transport->lifetime() == Lifetime::owner) {
      return;  // an owner waits for its peers, so opposite orders would only show the deadline
    }
    SymmetricBuffer& early = meet.rank() % 2 == 0 ? first : second;
    early = SymmetricBuffer();
    meet.barrier();
    // The memory that this rank kept is good, also at the ranks whose owner has left it.
    const SymmetricBuffer& kept = meet.rank() % 2 == 0 ? second : first;
    for (int peer = 0; peer < 4; ++peer) {
      write(kept.window(), peer, 4 + meet.rank(), 7);
      EXPECT_EQ(read(kept.window(), peer, 4 + meet.rank()), 7U);
    }
  });
}

TEST_P(MemoryConformance, DifferentSizesFailOnEveryRankNamingBoth) {
  const auto failures = run_ranks({0, 0, 0}, [&](Rendezvous& meet) {
    const SymmetricBuffer buffer = allocate(meet, GetParam().make(meet.rank()), meet.rank() == 1 ? 64 : 128);
  });
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find("mismatch"), std::string::npos) << failure;
    EXPECT_NE(failure.find(" 64"), std::string::npos) << failure;
    EXPECT_NE(failure.find(" 128"), std::string::npos) << failure;
  }
}

TEST_P(MemoryConformance, ARankThatCannotAllocateFailsTheOthersToo) {
  const auto failures = run_ranks({0, 0, 0}, [&](Rendezvous& meet) {
    const std::size_t too_much = std::size_t{1} << 62;
    const SymmetricBuffer buffer = allocate(meet, GetParam().make(meet.rank()), meet.rank() == 2 ? too_much : 128);
  });
  EXPECT_NE(failures[0].find("rank 2 failed while allocating"), std::string::npos) << failures[0];
  EXPECT_NE(failures[1].find("rank 2 failed while allocating"), std::string::npos) << failures[1];
  EXPECT_NE(failures[2], "");
}

TEST_P(MemoryConformance, AnotherKindsTicketIsRefused) {
  const auto transport = GetParam().make(0);
  EXPECT_THROW((void)transport->map(MemoryTicket{}), Error);
  MemoryTicket other = transport->allocate(16)->ticket();
  other.bytes[0] ^= std::byte{7};
  EXPECT_THROW((void)transport->map(std::move(other)), Error);
}

TEST_P(MemoryConformance, ZeroBytesAreRefused) {
  const auto transport = GetParam().make(0);
  EXPECT_THROW((void)transport->allocate(0), Error);
}

}  // namespace moelink::test

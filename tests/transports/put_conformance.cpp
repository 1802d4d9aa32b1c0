#include "put_conformance.hpp"

#include <algorithm>
#include <set>

namespace moelink::test {
namespace {

constexpr std::size_t kMillion = (std::size_t{1} << 20) + 1;

std::uint64_t seed_of(int from, int to, std::size_t index) {
  return static_cast<std::uint64_t>(from) << 40 | static_cast<std::uint64_t>(to) << 32 | index;
}

}  // namespace

TEST_P(PutConformance, EverySizeArrivesWholeInBothDirectionsAtOnce) {
  const std::vector<std::size_t> sizes = {0, 1, 7, 4096, 4097, 65536, kMillion};
  run_well(2, sizes.size() * (kMillion + 63), [&](PutRank& rank) {
    const int peer = 1 - rank.rank();
    std::vector<Put> puts;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      rank.fill(i * (kMillion + 63), sizes[i], seed_of(rank.rank(), peer, i));
      puts.push_back(rank.make(peer, i * (kMillion + 63), sizes[i], static_cast<std::uint32_t>(i)));
    }
    rank.put(puts);
    rank.wait(sizes.size(), sizes.size());
    std::set<std::uint32_t> seen;
    for (const PutEvent& event : rank.arrived) {
      EXPECT_EQ(event.peer, peer);
      EXPECT_TRUE(seen.insert(event.immediate).second) << event.immediate << " twice";
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(rank.num_wrong(i * (kMillion + 63), sizes[i], seed_of(peer, rank.rank(), i)), 0U) << sizes[i];
      // Not a byte more: what lies behind is as it was.
      EXPECT_EQ(rank.in()[i * (kMillion + 63) + sizes[i]], std::byte{0}) << sizes[i];
    }
    rank.meet().barrier();
  });
}

TEST_P(PutConformance, APayloadIsVisibleWhenItsOwnImmediateIs) {
  constexpr std::size_t kChunks = 96;
  constexpr std::size_t kBytes = 6000;
  for (const int ranks : {2, 3, 4}) {
    run_well(ranks, kChunks * kBytes * static_cast<std::size_t>(ranks), [&](PutRank& rank) {
      const auto offset_of = [&](int source, std::size_t chunk) {
        return (static_cast<std::size_t>(source) * kChunks + chunk) * kBytes;
      };
      std::vector<Put> puts;
      for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
        rank.fill(offset_of(rank.rank(), chunk), kBytes, seed_of(rank.rank(), 0, chunk));
        for (const int peer : rank.remotes()) {
          puts.push_back(rank.make(peer, offset_of(rank.rank(), chunk), kBytes, static_cast<std::uint32_t>(chunk)));
        }
      }
      rank.put(puts);
      const std::size_t expected = kChunks * rank.remotes().size();
      std::size_t checked = 0;
      const Deadline deadline = Deadline::after(PutRank::kPatience);
      while (checked < expected && !deadline.expired()) {
        for (; checked < rank.arrived.size(); ++checked) {  // at once: nothing else has told of it
          const PutEvent event = rank.arrived[checked];
          EXPECT_EQ(
              rank.num_wrong(offset_of(event.peer, event.immediate), kBytes, seed_of(event.peer, 0, event.immediate)),
              0U)
              << "chunk " << event.immediate << " of rank " << event.peer;
        }
        rank.poll_once();
      }
      rank.wait(expected, expected);
      rank.meet().barrier();
    });
  }
}

TEST_P(PutConformance, SentGivesBackTheTokenAndTheSourceMayChangeAtOnce) {
  constexpr std::size_t kRounds = 40;
  constexpr std::size_t kBytes = 20'000;
  run_well(2, kRounds * kBytes, [&](PutRank& rank) {
    const int peer = 1 - rank.rank();
    for (std::size_t round = 0; round < kRounds; ++round) {
      rank.fill(0, kBytes, seed_of(rank.rank(), peer, round));  // the one staging area of all rounds
      Put put = rank.make(peer, 0, kBytes, static_cast<std::uint32_t>(round));
      put.target_offset_bytes = round * kBytes;
      put.token = 1'000'000'007 * (round + 1);
      rank.put(put);
      rank.wait(round + 1, 0);
      EXPECT_EQ(rank.sent.back().token, put.token);
      EXPECT_EQ(rank.sent.back().peer, peer);
    }
    rank.wait(kRounds, kRounds);
    for (std::size_t round = 0; round < kRounds; ++round) {
      EXPECT_EQ(rank.num_wrong(round * kBytes, kBytes, seed_of(peer, rank.rank(), round)), 0U) << round;
    }
    rank.meet().barrier();
  });
}

TEST_P(PutConformance, AReceiverThatDoesNotPollLosesNothing) {
  constexpr std::size_t kPuts = 300;
  run_well(
      2, kPuts * 64,
      [&](PutRank& rank) {
        if (rank.rank() == 0) {
          std::vector<Put> puts;
          for (std::size_t i = 0; i < kPuts; ++i) {
            rank.fill(i * 64, 64, i);
            puts.push_back(rank.make(1, i * 64, 64, static_cast<std::uint32_t>(i)));
          }
          rank.put(puts);
          rank.wait(kPuts, 0);
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(150));  // the queue is long full
          rank.wait(0, kPuts);
          for (std::size_t i = 0; i < kPuts; ++i) EXPECT_EQ(rank.num_wrong(i * 64, 64, i), 0U) << i;
        }
        rank.meet().barrier();
      },
      [](PutOptions& options) { options.receive_depth = 8; });
}

TEST_P(PutConformance, AFullSendQueueTakesNoMoreAndGoesOnAfterPoll) {
  run_well(
      2, 400 * 16,
      [&](PutRank& rank) {
        const int peer = 1 - rank.rank();
        for (std::uint32_t i = 0; i < 400; ++i) {
          rank.fill(i * 16, 16, i);
          rank.put(rank.make(peer, i * 16, 16, i));
        }
        rank.wait(400, 400);
        for (std::size_t i = 0; i < 400; ++i) EXPECT_EQ(rank.num_wrong(i * 16, 16, i), 0U) << i;
        rank.meet().barrier();
      },
      [](PutOptions& options) { options.send_depth = 2; });
}

TEST_P(PutConformance, PutsOutsideTheirRegionsAreRefusedAndHarmNobody) {
  constexpr std::size_t kBytes = 1000;
  run_well(2, kBytes, [&](PutRank& rank) {
    const int peer = 1 - rank.rank();
    const auto refused = [&](const Put& put, const std::string& word) {
      try {
        (void)rank.transport().put(std::span(&put, 1));
        ADD_FAILURE() << "taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
    };
    const std::string name = text("rank ", peer);
    Put put = rank.make(peer, 1, kBytes, 0);  // one byte too far at both ends
    refused(put, name);
    put = rank.make(peer, 0, kBytes, 0);
    put.target_offset_bytes = 1;
    refused(put, text("region of ", kBytes));
    put.target_offset_bytes = ~std::size_t{0} - 10;  // wraps around
    refused(put, name);
    put = rank.make(peer, 0, kBytes, 0);
    put.source_offset_bytes = ~std::size_t{0};
    refused(put, name);
    put = rank.make(peer, 0, 1, 0);
    put.source = nullptr;
    refused(put, name);
    put = rank.make(peer, 0, 1, 0);
    put.target = nullptr;
    refused(put, "no region");
    // One bad put among good ones: none of them starts.
    const std::vector<Put> mixed = {rank.make(peer, 0, 1, 77), rank.make(peer, kBytes, 1, 78)};
    EXPECT_THROW((void)rank.transport().put(mixed), Error);
    rank.put(rank.make(peer, kBytes, 0, 5));  // nothing at the very end is inside
    rank.wait(1, 1);
    EXPECT_EQ(rank.arrived[0].immediate, 5U);
    rank.meet().barrier();
  });
}

TEST_P(PutConformance, AnotherTransportsKeyOrADamagedOneIsRefusedByName) {
  run_well(3, 64, [&](PutRank& rank) {
    const int peer = rank.remotes()[0];
    Bytes key = rank.source()->key();
    const auto refused = [&](int of, const Bytes& bytes, ErrorCode code) {
      try {
        (void)rank.transport().import_region(of, bytes);
        ADD_FAILURE() << "imported";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        EXPECT_NE(std::string(error.what()).find(text("rank ", of)), std::string::npos) << error.what();
      }
    };
    refused(peer, {}, ErrorCode::peer);
    refused(peer, Bytes(200, std::byte{0x5a}), ErrorCode::peer);
    for (std::size_t i = 0; i < key.size(); i += 3) {
      Bytes damaged = key;
      damaged[i] ^= std::byte{0x10};
      refused(peer, damaged, ErrorCode::peer);
    }
    refused(peer, Bytes(key.begin(), key.end() - 1), ErrorCode::peer);
    refused(rank.rank(), key, ErrorCode::invalid_argument);  // puts to oneself do not exist
    refused(99, key, ErrorCode::invalid_argument);
    rank.meet().barrier();
  });
}

TEST_P(PutConformance, MemoryThatItsOwnerTookBackIsNotWrittenAndTheErrorNamesThePeer) {
  const bool owner_notices = GetParam().owner_notices_lost_region;
  const auto failures = run(2, 4096, [&](PutRank& rank) {
    if (rank.rank() == 1) rank.drop_target();
    rank.meet().barrier();
    if (rank.rank() == 0) {
      rank.fill(0, 4096, 3);
      rank.put(rank.make(1, 0, 4096, 9));
    }
    if ((rank.rank() == 1) == owner_notices) {
      rank.wait(2, 1);  // never: it throws
    }
    const Deadline deadline = Deadline::after(std::chrono::milliseconds(300));
    while (!deadline.expired()) {
      try {
        rank.poll_once();
      } catch (const PutFailure&) {  // the other side may learn of it, too
        break;
      }
    }
    EXPECT_TRUE(rank.arrived.empty());
    EXPECT_EQ(std::ranges::count(rank.in(), std::byte{0}), 4096);
  });
  const std::size_t who = owner_notices ? 1 : 0;
  EXPECT_NE(failures[who].find(text("rank ", 1 - who)), std::string::npos) << failures[who];
  EXPECT_EQ(failures[who].find("in vain"), std::string::npos) << failures[who];
}

TEST_P(PutConformance, APeerThatDiesIsAnErrorThatNamesItAndStays) {
  const auto failures = run(3, 4096, [&](PutRank& rank) {
    // Once each way: UCX 1.13 ends the process if a peer goes while it still shakes hands.
    // Each to a place of its own at the peer.
    for (const int peer : rank.remotes()) {
      rank.put(rank.make(peer, std::int64_t{64} * rank.rank(), 8, 60'000 + static_cast<unsigned>(peer)));
    }
    rank.wait(2, 2);
    rank.meet().barrier();
    if (rank.rank() == 1) {
      rank.leave();
      return;
    }
    if (rank.rank() == 2) return;
    const Deadline deadline = Deadline::after(PutRank::kPatience);
    try {
      for (std::uint32_t i = 0; !deadline.expired(); ++i) {
        rank.put(rank.make(1, 0, 4096, i % 60'000));
        rank.poll_once();
      }
      ADD_FAILURE() << "nobody noticed";
    } catch (const PutFailure& failure) {
      EXPECT_EQ(failure.peer(), 1);
      EXPECT_NE(std::string(failure.what()).find("rank 1"), std::string::npos) << failure.what();
    }
    PutEvent event;
    EXPECT_THROW((void)rank.transport().poll(std::span(&event, 1)), PutFailure);
    const Put put = rank.make(2, 0, 8, 1);
    EXPECT_THROW((void)rank.transport().put(std::span(&put, 1)), PutFailure);
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST_P(PutConformance, ARankThatGoesWhilePutsAreUnderWayGoesInTimeAndAlone) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const auto failures = run(2, kBytes, [&](PutRank& rank) {
    rank.meet().barrier();
    if (rank.rank() == 0) {
      rank.put(rank.make(1, 0, kBytes, 1));
      rank.put(rank.make(1, 0, 8, 2));
      rank.poll_for(std::chrono::milliseconds(50));
      const Deadline deadline = Deadline::after(std::chrono::seconds(5));
      rank.leave();
      EXPECT_FALSE(deadline.expired());
    }
    rank.meet().barrier();  // until then rank 1 takes nothing
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST_P(PutConformance, NoBytesAndNoMemoryAreNoRegion) {
  run_well(2, 64, [&](PutRank& rank) {
    std::byte byte{};
    EXPECT_THROW((void)rank.transport().add_region({&byte, 0}), Error);
    EXPECT_THROW((void)rank.transport().add_region({nullptr, 16}), Error);
    rank.meet().barrier();
  });
}

TEST_P(PutConformance, GarbageForAnAddressFailsEveryRankByName) {
  const auto failures = GetParam().run_ranks({0, 0}, [&](Rendezvous& meet) {
    const auto transport = GetParam().make(options_of(meet));
    const Bytes mine = meet.rank() == 1 ? Bytes(40, std::byte{7}) : transport->address();
    transport->connect(gather_bytes(meet, mine));
  });
  EXPECT_NE(failures[0].find("rank 1"), std::string::npos) << failures[0];
}

}  // namespace moelink::test

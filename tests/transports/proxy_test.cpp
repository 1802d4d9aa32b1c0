// transports/proxy with kernels/put: ranks as threads that run the kernels' functions, each with a proxy.
#include <gtest/gtest.h>

#include <cstring>

#include "proxy_rank.hpp"
#if MOELINK_HAVE_VERBS
#include "soft_nic_case.hpp"
#endif

namespace moelink::test {
namespace {

u64 seed_of(u32 phase, u64 epoch, int source, int destination, int chunk) {
  return ((epoch * 8 + phase) * 16 + static_cast<u64>(source)) * 16 + static_cast<u64>(destination) +
         (static_cast<u64>(chunk) << 40);
}
i64 bytes_of_chunk(u64 seed) { return static_cast<i64>(seed * 0x9e3779b97f4a7c15 >> 52); }  // 0 to 4095
int count_of(u64 seed, int most) {
  return static_cast<int>((seed * 0x9e3779b97f4a7c15 >> 33) % static_cast<u64>(most));
}

/// Packs and hands over: a header with the number of chunks, then so many, by two threads at once.
void send(ProxyRank& rank, u32 phase, u64 epoch) {
  ASSERT_TRUE(wait_until_sent(rank.channel->view(), rank.context, phase, epoch));
  const auto send_part = [&](int part) {
    for (const int peer : rank.proxy->options().remotes) {
      const int count = count_of(seed_of(phase, epoch, rank.meet.rank(), peer, 0), rank.max_chunks);
      for (int chunk = part; chunk <= count; chunk += 2) {
        const u64 seed = seed_of(phase, epoch, rank.meet.rank(), peer, chunk);
        std::byte* place = rank.out.data() + rank.offset(phase, peer, chunk);
        const i64 bytes = chunk == 0 ? i64{sizeof(int)} : bytes_of_chunk(seed);
        for (i64 i = 0; i < bytes; ++i) place[i] = payload_byte(seed, static_cast<std::size_t>(i));
        if (chunk == 0) std::memcpy(place, &count, sizeof(count));
        EXPECT_TRUE(rank.hand_over_chunk(phase, epoch, peer, chunk, bytes));
      }
    }
  };
  std::thread other([&] { send_part(1); });
  send_part(0);
  other.join();
}

void receive(ProxyRank& rank, u32 phase, u64 epoch) {
  const PutChannelView& view = rank.channel->view();
  const auto wait = [&](int source, int chunk) {
    return wait_for_chunk(view, rank.context, FaultPhase::dispatch_receive, phase, source, chunk, epoch);
  };
  for (const int source : rank.proxy->options().remotes) {
    ASSERT_TRUE(wait(source, 0));
    int count = -1;
    std::memcpy(&count, rank.in.data() + rank.offset(phase, source, 0), sizeof(count));
    ASSERT_EQ(count, count_of(seed_of(phase, epoch, source, rank.meet.rank(), 0), rank.max_chunks));
    for (int chunk = 1; chunk <= count; ++chunk) {
      ASSERT_TRUE(wait(source, chunk));
      const u64 seed = seed_of(phase, epoch, source, rank.meet.rank(), chunk);
      const std::byte* place = rank.in.data() + rank.offset(phase, source, chunk);
      i64 wrong = 0;
      for (i64 i = 0; i < bytes_of_chunk(seed); ++i) {
        wrong += place[i] != payload_byte(seed, static_cast<std::size_t>(i)) ? 1 : 0;
      }
      ASSERT_EQ(wrong, 0) << "epoch " << epoch << " phase " << phase << " chunk " << chunk << " of rank " << source;
    }
  }
}

void run_epochs(int num_ranks, u64 num_epochs, const Make& make) {
  for (const std::string& failure : run_ranks(std::vector<int>(static_cast<std::size_t>(num_ranks)), [&](auto& meet) {
         ProxyRank rank(meet, make, 6, 3);  // a ring that is full again and again
         for (u64 epoch = 1; epoch <= num_epochs && !testing::Test::HasFailure(); ++epoch) {
           for (const u32 phase : {0U, 1U}) {
             send(rank, phase, epoch);
             receive(rank, phase, epoch);
           }
         }
         rank.proxy->check();
       })) {
    EXPECT_EQ(failure, "");
  }
}

TEST(Proxy, EpochsReuseStagingAndFlagsPastTheWrapOfTheirLowBits) {
  for (const int ranks : {2, 3, 4}) run_epochs(ranks, ranks == 2 ? 300 : 40, make_loopback_put);
}

#if MOELINK_HAVE_VERBS
TEST(Proxy, ReorderedSplitAndDelayedWritesNeverShowAChunkTooEarly) {
  for (const char* words : {"reorder,split,delay_us=200", "devices=2,reorder,split,delay_us=100"}) {
    run_epochs(3, 25, [&](const PutOptions& options) { return make_soft_put(options, words); });
  }
}
#endif

TEST(Proxy, ChannelsThatDifferAreRefusedOnEveryRankAndTheProxyLivesOn) {
  for (const std::string& failure : run_ranks({0, 0, 0}, [&](Rendezvous& meet) {
         ProxyRank rank(meet, make_loopback_put, 4);
         PutChannelConfig config = rank.config(0);
         if (meet.rank() == 1) config.max_chunks = 5;
         try {
           (void)rank.proxy->open(meet, config);
           ADD_FAILURE() << "opened";
         } catch (const Error& error) {
           EXPECT_EQ(error.code(), ErrorCode::mismatch);
           EXPECT_NE(std::string(error.what()).find("max_chunks is "), std::string::npos) << error.what();
         }
         config.max_chunks = meet.rank() == 2 ? 0 : 4;  // invalid on one rank alone
         EXPECT_THROW((void)rank.proxy->open(meet, config), Error);
         config.max_chunks = 4;
         const auto second = rank.proxy->open(meet, config);
         EXPECT_EQ(second->view().exchange, 1U);
         send(rank, 0, 1);
         receive(rank, 0, 1);
         meet.barrier();
       })) {
    EXPECT_EQ(failure, "");
  }
}

TEST(Proxy, NumbersOfExchangesAreUsedAgainAfterAFarewellAndDestructionHasADeadline) {
  for (const std::string& failure : run_ranks({0, 0}, [&](Rendezvous& meet) {
         ProxyRank rank(meet, make_loopback_put, 4, 0, {}, 200ms);
         const auto start = std::chrono::steady_clock::now();
         for (int i = 0; i < 70; ++i) {  // more than there are numbers
           const auto channel = rank.proxy->open(meet, rank.config(0));
           EXPECT_EQ(channel->view().exchange, 1U);
         }
         EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
         auto second = rank.proxy->open(meet, rank.config(0));
         if (meet.rank() == 0) {
           const auto leaving = std::chrono::steady_clock::now();
           second.reset();  // rank 1 says no farewell
           EXPECT_GE(std::chrono::steady_clock::now() - leaving, 150ms);
           EXPECT_LT(std::chrono::steady_clock::now() - leaving, 5s);
         }
         meet.barrier();
         second.reset();
         const auto third = rank.proxy->open(meet, rank.config(0));
         EXPECT_EQ(third->view().exchange, 2U) << "a number that peers may still use";
       })) {
    EXPECT_EQ(failure, "");
  }
}

}  // namespace
}  // namespace moelink::test

// transports/proxy with kernels/put: ranks as threads that run the kernels' functions, each with a proxy.
#include "transports/proxy/proxy.hpp"

#include <gtest/gtest.h>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "base/fault.hpp"
#include "moelink/device/exec/host_exec.hpp"
#include "moelink/device/put/hand_over.cuh"
#include "put_rank.hpp"
#include "ranks.hpp"
#include "support/temporary_directory.hpp"
#include "transports/loopback/put.hpp"
#include "transports/proxy/nearness.hpp"
#include "transports/put_group.hpp"
#if MOELINK_HAVE_VERBS
#include "soft_nic_case.hpp"
#endif

namespace moelink::test {
namespace {

using namespace std::chrono_literals;
using Make = std::function<std::unique_ptr<PutTransport>(const PutOptions&)>;

constexpr i64 kSlotBytes = 4096;

PutOptions options_of(const Rendezvous& meet) {
  PutOptions options{.rank = meet.rank(), .num_ranks = meet.size()};
  for (int peer = 0; peer < meet.size(); ++peer) {
    if (peer != meet.rank()) options.remotes.push_back(peer);
  }
  return options;
}

/// A rank with a proxy, a fault context that the proxy can end, and one channel.
struct ProxyRank {
  ProxyRank(Rendezvous& rendezvous, const Make& make, int most_chunks, int ring_capacity = 0, PutOptions put = {},
            std::chrono::milliseconds farewell = 5s)
      : meet(rendezvous), max_chunks(most_chunks), out(region_bytes()), in(region_bytes()) {
    if (put.remotes.empty()) put = options_of(meet);
    auto transport = make(put);
    connect_puts(meet, *transport);
    proxy = std::make_unique<PutProxy>(
        std::move(transport),
        PutProxyOptions{
            .put = put, .farewell_deadline = farewell, .on_failure = [this](int peer, const std::string& sentence) {
              failure = sentence;
              failed_peer = peer;
              request_abort(record);
            }});
    channel = proxy->open(meet, config(ring_capacity));
    context = {.word = &word, .record = &record, .rank = meet.rank(), .timeout_ns = 20'000'000'000};
  }

  [[nodiscard]] std::size_t region_bytes() const {
    return static_cast<std::size_t>(2 * meet.size() * max_chunks * kSlotBytes);
  }
  [[nodiscard]] PutChannelConfig config(int ring_capacity) {
    return {.regions = {{out.data(), out.size()}, {in.data(), in.size()}},
            .max_chunks = max_chunks,
            .ring_capacity = ring_capacity};
  }
  [[nodiscard]] i64 offset(u32 phase, int rank, int chunk) const {
    return ((static_cast<i64>(phase) * meet.size() + rank) * max_chunks + chunk) * kSlotBytes;
  }
  [[nodiscard]] bool hand_over_chunk(u32 phase, u64 epoch, int peer, int chunk, i64 bytes) {
    return hand_over_block(HostExec(0, 1, nullptr), channel->view(), context,
                           {.peer = peer,
                            .phase = phase,
                            .epoch = epoch,
                            .chunk = chunk,
                            .source_region = 0,
                            .target_region = 1,
                            .source_offset_bytes = offset(phase, peer, chunk),
                            .target_offset_bytes = offset(phase, meet.rank(), chunk),
                            .size_bytes = bytes});
  }

  /// Whom the proxy blamed; `failure` may be read afterwards.
  [[nodiscard]] int blamed() const {
    while (failed_peer == -2) std::this_thread::yield();
    return failed_peer;
  }

  Rendezvous& meet;
  int max_chunks;
  std::vector<std::byte> out;
  std::vector<std::byte> in;
  u64 word = 0;
  FaultRecord record;
  FaultContext context;
  std::atomic<int> failed_peer{-2};
  std::string failure;  // written before failed_peer
  std::unique_ptr<PutProxy> proxy;
  std::unique_ptr<PutChannel> channel;
};

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

TEST(Proxy, ALinkThatBreaksEndsTheSendersWaitsAndTheReceiversAtTheirDeadlineNamingTheOther) {
  const auto failures = run_ranks({0, 0}, [&](Rendezvous& meet) {
    ProxyRank rank(
        meet,
        [&](const PutOptions& options) { return make_soft_put(options, options.rank == 0 ? "drop_after=7" : ""); }, 4,
        0, {}, 10ms);
    const int peer = 1 - meet.rank();
    if (meet.rank() == 1) rank.context.timeout_ns = 1'000'000'000;
    for (u64 epoch = 1; epoch < 100; ++epoch) {
      if (!rank.hand_over_chunk(0, epoch, peer, 0, 100)) break;
      if (!wait_for_chunk(rank.channel->view(), rank.context, FaultPhase::dispatch_receive, 0, peer, 0, epoch)) break;
    }
    const FaultWord fault = FaultWord::unpacked(rank.word);
    EXPECT_EQ(fault.peer, peer);
    meet.barrier();
    if (meet.rank() == 1) return;  // nothing of its own is under way: the group's fault, or its deadline, tells it
    EXPECT_EQ(fault.kind, FaultKind::aborted);
    EXPECT_EQ(rank.blamed(), peer);
    EXPECT_NE(rank.failure.find("rank 1 over soft0 port 1"), std::string::npos) << rank.failure;
    EXPECT_THROW(rank.proxy->check(), PutFailure);
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}
#endif

/// A transport that does not poll while it is stopped, and changes what it puts.
class AlteredPut : public PutTransport {
 public:
  AlteredPut(std::unique_ptr<PutTransport> inner, std::function<void(Put&)> alter, std::atomic<bool>& is_stopped)
      : inner_(std::move(inner)), alter_(std::move(alter)), is_stopped_(is_stopped) {}
  [[nodiscard]] PutKind kind() const noexcept override { return inner_->kind(); }
  [[nodiscard]] std::string describe() const override { return inner_->describe(); }
  [[nodiscard]] Bytes address() const override { return inner_->address(); }
  void connect(std::span<const Bytes> addresses) override { inner_->connect(addresses); }
  [[nodiscard]] std::unique_ptr<LocalRegion> add_region(const PutMemory& memory) override {
    return inner_->add_region(memory);
  }
  [[nodiscard]] std::unique_ptr<RemoteRegion> import_region(int peer, std::span<const std::byte> key) override {
    return inner_->import_region(peer, key);
  }
  [[nodiscard]] std::size_t put(std::span<const Put> puts) override {
    std::vector<Put> altered(puts.begin(), puts.end());
    for (Put& one : altered) alter_(one);
    return inner_->put(altered);
  }
  [[nodiscard]] std::size_t poll(std::span<PutEvent> events) override { return is_stopped_ ? 0 : inner_->poll(events); }

 private:
  std::unique_ptr<PutTransport> inner_;
  std::function<void(Put&)> alter_;
  std::atomic<bool>& is_stopped_;
};

TEST(Proxy, APeerThatIsStoppedIsAnErrorThatNamesIt) {
  std::atomic<bool> is_stopped{false};
  std::atomic<bool> never{false};
  const auto failures = run_ranks({0, 0}, [&](Rendezvous& meet) {
    PutOptions put = options_of(meet);
    put.receive_depth = 2;
    put.deadline = 300ms;
    const auto make = [&](const PutOptions& options) {
      return std::make_unique<AlteredPut>(
          make_loopback_put(options), [](Put&) {}, meet.rank() == 1 ? is_stopped : never);
    };
    ProxyRank rank(meet, make, 8, 0, put, 100ms);
    is_stopped = true;
    meet.barrier();
    if (meet.rank() == 0) {
      for (int chunk = 0; chunk < 8; ++chunk) ASSERT_TRUE(rank.hand_over_chunk(0, 1, 1, chunk, 64));
      EXPECT_FALSE(wait_for_chunk(rank.channel->view(), rank.context, FaultPhase::dispatch_receive, 0, 1, 0, 1));
      EXPECT_EQ(rank.blamed(), 1);
      EXPECT_NE(rank.failure.find("rank 1 has taken none of 6 puts"), std::string::npos) << rank.failure;
    }
    meet.barrier();
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(Proxy, AMessageFromAStrangerOrOfAnImpossibleEpochIsRefusedByName) {
  struct Bad {
    PutImmediate immediate;
    const char* word;
  };
  std::atomic<bool> never{false};
  for (const Bad& bad :
       {Bad{{.exchange = 9, .epoch_low = 1}, "does not have"}, Bad{{.epoch_low = 1, .chunk = 4}, "has 4 chunks"},
        Bad{{.epoch_low = 77}, "has seen it in epoch 0"}, Bad{{.epoch_low = 0}, "epoch 0"}}) {
    const auto make = [&](const PutOptions& options) {
      return std::make_unique<AlteredPut>(
          make_loopback_put(options), [&](Put& put) { put.immediate = bad.immediate.packed(); }, never);
    };
    const auto failures = run_ranks({0, 0}, [&](Rendezvous& meet) {
      ProxyRank rank(meet, make, 4, 0, {}, 1ms);
      if (meet.rank() == 1) {
        ASSERT_TRUE(rank.hand_over_chunk(0, 1, 0, 0, 8));
        meet.barrier();
        return;
      }
      EXPECT_FALSE(wait_for_chunk(rank.channel->view(), rank.context, FaultPhase::dispatch_receive, 0, 1, 0, 1));
      EXPECT_EQ(rank.blamed(), 1);
      meet.barrier();
      rank.proxy->check();
    });
    EXPECT_NE(failures[0].find("rank 1"), std::string::npos) << failures[0];
    EXPECT_NE(failures[0].find(bad.word), std::string::npos) << failures[0];
    EXPECT_EQ(failures[1], "");
  }
}

TEST(Proxy, APutThatItsChannelDoesNotHaveIsThisRanksFailure) {
  const auto failures = run_ranks({0, 0}, [&](Rendezvous& meet) {
    ProxyRank rank(meet, make_loopback_put, 4, 0, {}, 10ms);
    if (meet.rank() == 0) {
      ASSERT_TRUE(hand_over(rank.channel->view(), rank.context, {.peer = 7, .epoch = 1}));
      EXPECT_FALSE(wait_until_sent(rank.channel->view(), rank.context, 0, 1));
      EXPECT_EQ(rank.blamed(), -1);
      rank.proxy->check();
    }
  });
  EXPECT_NE(failures[0].find("a kernel of rank 0 handed over a put to rank 7"), std::string::npos) << failures[0];
}

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

/// A transport whose poll() does not come back while it is stuck.
class StuckPut final : public AlteredPut {
 public:
  StuckPut(std::unique_ptr<PutTransport> inner, std::atomic<bool>& is_stuck)
      : AlteredPut(
            std::move(inner), [](Put&) {}, never_),
        is_stuck_(is_stuck) {}
  [[nodiscard]] std::size_t poll(std::span<PutEvent> events) override {
    while (is_stuck_) std::this_thread::sleep_for(1ms);
    return AlteredPut::poll(events);
  }

 private:
  std::atomic<bool> never_{false};
  std::atomic<bool>& is_stuck_;
};

TEST(Proxy, OneThatIsStuckInItsTransportIsAnErrorNotAHang) {
  std::atomic<bool> is_stuck{true};
  const auto failures = run_ranks({0}, [&](Rendezvous& meet) {
    const PutOptions put{.rank = 0, .num_ranks = 1, .deadline = 100ms};
    auto transport = std::make_unique<StuckPut>(make_loopback_put(put), is_stuck);
    connect_puts(meet, *transport);
    PutProxy proxy(std::move(transport), {.put = put});
    std::vector<std::byte> memory(64);
    const PutChannelConfig config{.regions = {{memory.data(), memory.size()}}};
    std::this_thread::sleep_for(20ms);  // until its thread is in poll()
    try {
      (void)proxy.open(meet, config);
      ADD_FAILURE() << "opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout);
      EXPECT_NE(std::string(error.what()).find("stuck in "), std::string::npos) << error.what();
    }
    is_stuck = false;
    (void)proxy.open(meet, config);  // what was given up is not done later
  });
  EXPECT_EQ(failures[0], "");
}

TEST(Nearness, ListsOfProcessorsAreReadAsLinuxWritesThem) {
  EXPECT_EQ(processors_of_list("0-3,8,10-11"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(processors_of_list("7"), std::vector<int>{7});
  for (const char* bad : {"", "x", "3-", "1,,2", "1;2", "-4", "99999999999"}) {
    EXPECT_EQ(processors_of_list(bad), std::vector<int>()) << bad;
  }
}

TEST(Nearness, AThreadStaysNearADeviceOnlyWhereItMayRunThere) {
  const auto processors_of = [](std::thread& thread) {
    cpu_set_t set;
    EXPECT_EQ(pthread_getaffinity_np(thread.native_handle(), sizeof(set), &set), 0);
    std::vector<int> processors;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) processors.push_back(i);
    }
    return processors;
  };
  const TemporaryDirectory folder;
  std::atomic<bool> end{false};
  std::thread thread([&] {
    while (!end) std::this_thread::sleep_for(1ms);
  });
  const std::vector<int> before = processors_of(thread);
  EXPECT_FALSE(keep_near(thread, ""));
  EXPECT_FALSE(keep_near(thread, folder.path()));  // nothing said
  std::ofstream(folder.path() / "local_cpulist") << "1000-1001\n";
  EXPECT_FALSE(keep_near(thread, folder.path()));
  EXPECT_EQ(processors_of(thread), before);
  std::ofstream(folder.path() / "local_cpulist") << before.back() << "\n";
  EXPECT_EQ(keep_near(thread, folder.path()), before.size() > 1);
  EXPECT_EQ(processors_of(thread), std::vector<int>{before.back()});
  end = true;
  thread.join();
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

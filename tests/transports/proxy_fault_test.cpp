// transports/proxy where something fails: the other rank, the link, a kernel, the transport itself.
#include <gtest/gtest.h>

#include "proxy_rank.hpp"
#if MOELINK_HAVE_VERBS
#include "soft_nic_case.hpp"
#endif

namespace moelink::test {
namespace {

#if MOELINK_HAVE_VERBS
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

/// A transport whose poll() does not come back while it is stuck.
class StuckPut : public AlteredPut {
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

/// Its memory is its own; once it gets going again, it ends.
TEST(Proxy, OneThatIsStuckForEverDoesNotHoldUpItsOwnerAndTellsNobodyAfterwards) {
  struct Shared {
    std::atomic<bool> is_stuck{false};
    std::atomic<int> num_transports{0};
    std::atomic<int> num_told{0};
  };
  class CountedPut final : public StuckPut {
   public:
    CountedPut(std::unique_ptr<PutTransport> inner, Shared& shared)
        : StuckPut(std::move(inner), shared.is_stuck), shared_(shared) {
      ++shared_.num_transports;
    }
    ~CountedPut() override { --shared_.num_transports; }
    [[nodiscard]] std::size_t poll(std::span<PutEvent> events) override {
      const bool was_stuck = shared_.is_stuck;
      const std::size_t count = StuckPut::poll(events);
      if (was_stuck) throw PutFailure(0, "it was stuck");
      return count;
    }

   private:
    Shared& shared_;
  };
  Shared shared;
  const auto failures = run_ranks({0}, [&](Rendezvous& meet) {
    const PutOptions put{.rank = 0, .num_ranks = 1, .deadline = 100ms};
    auto transport = std::make_unique<CountedPut>(make_loopback_put(put), shared);
    connect_puts(meet, *transport);
    auto proxy = std::make_unique<PutProxy>(
        std::move(transport),
        PutProxyOptions{
            .put = put, .farewell_deadline = 100ms, .on_failure = [&](int, const std::string&) { ++shared.num_told; }});
    auto memory = std::make_shared<std::vector<std::byte>>(64);
    const PutChannelConfig config{.regions = {{memory->data(), memory->size()}}};
    auto left = proxy->open(meet, config);
    auto closed = proxy->open(meet, config);
    shared.is_stuck = true;
    std::this_thread::sleep_for(20ms);  // until its thread is in poll()
    const auto start = std::chrono::steady_clock::now();
    proxy->leave(std::move(left), memory);
    closed.reset();
    proxy.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
    shared.is_stuck = false;
    const Deadline deadline = Deadline::after(10s);
    while (shared.num_transports != 0 && !deadline.expired()) std::this_thread::sleep_for(1ms);
  });
  EXPECT_EQ(failures[0], "");
  EXPECT_EQ(shared.num_transports, 0) << "the thread keeps its transport";
  EXPECT_EQ(shared.num_told, 0);
}

}  // namespace
}  // namespace moelink::test

// The CUDA transports over a fake driver: the conformance suite, and every call failing once.
#include <gtest/gtest.h>

#include "base/cuda_driver.hpp"

#if MOELINK_HAVE_CUDA

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>

#include "fake_driver.hpp"
#include "memory_conformance.hpp"
#include "transports/make_memory.hpp"
#include "transports/shm/memory.hpp"
#include "transports/vmm/memory.hpp"

namespace moelink::test {
namespace {

MemoryCase fake_case(MemoryKind kind) {
  return {std::string(name_of(kind)), no_obstacle,
          [kind](int rank) -> std::shared_ptr<MemoryTransport> {
            return make_cuda_memory(kind, fake_driver().driver(), rank);
          },
          write_host, read_host};
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, MemoryConformance,
                         ::testing::Values(fake_case(MemoryKind::threads), fake_case(MemoryKind::vmm),
                                           fake_case(MemoryKind::fabric), fake_case(MemoryKind::ipc)),
                         case_name);

class FakeCudaMemory : public ::testing::TestWithParam<MemoryKind> {
 protected:
  void SetUp() override { fake_driver().fail_call(0); }
  void TearDown() override {
    fake_driver().fail_call(0);
    EXPECT_EQ(fake_driver().held(), "");
    EXPECT_EQ(fake_driver().broken_rules(), "");
  }
  [[nodiscard]] std::shared_ptr<MemoryTransport> make(int rank) const {
    return make_cuda_memory(GetParam(), fake_driver().driver(), rank);
  }
  [[nodiscard]] PeerGroupOptions options() const {
    PeerGroupOptions all;
    all.socket_directory = directory_.path();
    all.deadline = std::chrono::seconds(20);
    return all;
  }
  TestDirectory directory_;
};

TEST_P(FakeCudaMemory, NothingIsHeldAfterwards) {
  { const auto memory = make(0)->allocate(100); }
  EXPECT_EQ(fake_driver().held(), "");
}

TEST_P(FakeCudaMemory, EveryCallThatCanFailLeavesNothingWhenItDoes) {
  const auto whole_life = [&] {
    const auto owner = make(0);
    const auto peer = make(1);
    const auto owned = owner->allocate(100);
    const auto mapped = peer->map(owned->ticket());
    std::uint32_t word = 5;
    mapped->store(8, std::as_bytes(std::span(&word, 1)));
    owned->load(8, std::as_writable_bytes(std::span(&word, 1)));
  };
  fake_driver().fail_call(0);
  whole_life();
  const int calls = fake_driver().num_calls();
  ASSERT_GT(calls, 5);
  const Leftovers before = count_leftovers(directory_.path());
  for (int n = 1; n <= calls; ++n) {
    fake_driver().fail_call(n, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_THROW(whole_life(), Error) << "call " << n;
    EXPECT_EQ(fake_driver().held(), "") << "call " << n;
    EXPECT_EQ(count_leftovers(directory_.path()), before) << "call " << n;
  }
}

TEST_P(FakeCudaMemory, AFailureOnOneRankFailsAllAndLeavesNothing) {
  int calls = 0;
  const auto allocate_on_three = [&] {
    return run_ranks({0, 0, 0}, [&](Rendezvous& meet) {
      const std::vector<int> nodes{0, 0, 0};
      const auto transport = make(meet.rank());
      const SymmetricBuffer buffer(allocate_symmetric(meet, transport, nodes, 100, options()));
      meet.barrier();
      if (meet.rank() == 0) {
        calls = fake_driver().num_calls();
        fake_driver().fail_call(0);  // what fails in a destructor is another test's
      }
      meet.barrier();
    });
  };
  EXPECT_EQ(allocate_on_three(), std::vector<std::string>(3));
  const Leftovers before = count_leftovers(directory_.path());
  const int step = 1 + calls / 40;
  for (int n = 1; n <= calls; n += step) {
    fake_driver().fail_call(n);
    for (const std::string& failure : allocate_on_three()) {
      EXPECT_NE(failure, "") << "call " << n;
    }
    EXPECT_EQ(fake_driver().held(), "") << "call " << n;
    EXPECT_EQ(fake_driver().broken_rules(), "") << "call " << n;
    EXPECT_EQ(count_leftovers(directory_.path()), before) << "call " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FakeCudaMemory,
                         ::testing::Values(MemoryKind::threads, MemoryKind::vmm, MemoryKind::fabric, MemoryKind::ipc),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

TEST(VmmMemory, ExportedDescriptorsDoNotReachTheCallersChildren) {
  const auto transport = make_vmm_memory(fake_driver().driver(), 0);
  const MemoryTicket ticket = transport->allocate(1)->ticket();
  EXPECT_NE(::fcntl(ticket.descriptor.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(IpcMemory, TheOwnerWaitsForItsPeersAndFreesAfterwards) {
  fake_driver().fail_call(0);
  std::atomic<bool> peer_is_done = false;
  const auto failures = run_ranks({0, 0}, [&](Rendezvous& meet) {
    const auto transport =
        std::shared_ptr<MemoryTransport>(make_cuda_memory(MemoryKind::ipc, fake_driver().driver(), meet.rank()));
    const std::vector<int> nodes{0, 0};
    std::optional<SymmetricBuffer> buffer(allocate_symmetric(meet, transport, nodes, 100, {}));
    if (meet.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      peer_is_done = true;
    }
    buffer.reset();
    EXPECT_TRUE(peer_is_done) << "rank " << meet.rank() << " freed memory that a peer still had open";
  });
  EXPECT_EQ(failures, std::vector<std::string>(2));
  EXPECT_EQ(fake_driver().held(), "");
  EXPECT_EQ(fake_driver().broken_rules(), "");
}

/// Buffers of two ranks that have mapped each other.
std::array<std::unique_ptr<SymmetricBuffer::State>, 2> pair_of_states(
    const std::function<std::shared_ptr<MemoryTransport>(int rank)>& transport_of, std::chrono::milliseconds farewell) {
  std::array<std::unique_ptr<SymmetricBuffer::State>, 2> pair;
  for (const int rank : {0, 1}) {
    pair[static_cast<std::size_t>(rank)] =
        std::make_unique<SymmetricBuffer::State>(transport_of(rank), rank, std::vector<int>{0, 0}, 100, farewell);
  }
  pair[0]->map_peer(1, pair[1]->ticket());
  pair[1]->map_peer(0, pair[0]->ticket());
  pair[0]->finish();
  pair[1]->finish();
  return pair;
}

/// Rank 0's end of an ipc buffer whose peer never says farewell; true if the memory was kept.
bool leave_without_farewell(bool abandon, std::chrono::milliseconds farewell, double& waited_ms) {
  auto pair = pair_of_states([](int rank) { return make_cuda_memory(MemoryKind::ipc, fake_driver().driver(), rank); },
                             farewell);
  auto boards = pair_of_states([](int) { return make_shm_memory(); }, farewell);
  pair[0]->set_farewell_board(std::move(boards[0]));
  if (abandon) {
    pair[0]->abandon();
  }
  const auto frees = [] {
    const auto calls = fake_driver().calls();
    return std::ranges::count(calls, "cuMemFree");
  };
  const auto before = frees();
  const auto start = std::chrono::steady_clock::now();
  pair[0].reset();
  waited_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return frees() == before;
}

// In a child process each: what is kept is kept until the process ends.
TEST(IpcMemory, APeerThatNeverAnswersCostsTheDeadlineAndTheMemoryIsKept) {
  const auto child = [] {
    double waited_ms = 0;
    const bool kept = leave_without_farewell(false, std::chrono::milliseconds(200), waited_ms);
    std::_Exit(kept && waited_ms >= 200 && waited_ms < 5000 ? 0 : 1);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "the memory is kept until the process ends");
}

TEST(IpcMemory, AnAbandonedGroupIsNotWaitedFor) {
  const auto child = [] {
    double waited_ms = 0;
    const bool kept = leave_without_farewell(true, std::chrono::seconds(60), waited_ms);
    std::_Exit(kept && waited_ms < 5000 ? 0 : 1);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace moelink::test

#else

#include "memory_conformance.hpp"

namespace moelink::test {
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MemoryConformance);
}

TEST(FakeCuda, NeedsTheToolkit) { GTEST_SKIP() << "this build has no CUDA"; }

#endif

// Mode p2p over every transport: thousands of calls with delays, over soft NICs that reorder, split, delay and lose
// what they are given, over UCX, among very many ranks; and what the ranks get when a NIC or a rank fails.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "exchange/many_calls.hpp"
#include "moelink/error.hpp"

namespace moelink::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSlower = 10;
#else
constexpr int kSlower = 1;
#endif

TEST(RemoteReuse, ThousandsOfCallsWithRandomDelaysNeverMixEpochs) {
  run_many_times({.num_ranks = 3, .num_experts = 7, .hidden = 16, .max_tokens = 3, .ranks_per_node = 1},
                 2000 / kSlower);
  run_many_times({.num_ranks = 3, .num_experts = 7, .hidden = 16, .max_tokens = 20, .ranks_per_node = 2},
                 1000 / kSlower);
}

TEST(RemoteReuse, CallsAcrossTheCrossoverToManyTokensNeverMixEpochs) {
  run_many_times({.num_ranks = 4, .num_experts = 12, .top_k = 4, .hidden = 16, .max_tokens = 400, .ranks_per_node = 2},
                 150 / kSlower);
}

/// MOELINK_TEST_RANKS=256 takes half a minute of processors.
int num_many_ranks() {
  if (const char* words = std::getenv("MOELINK_TEST_RANKS")) return std::max(std::atoi(words), 8);
  return kSlower == 1 ? 64 : 16;
}

TEST(RemoteRanks, ManyOfThemFindEachOther) {
  const RanksShape shape{.num_ranks = num_many_ranks(),
                         .num_experts = 2 * num_many_ranks(),
                         .top_k = 4,
                         .hidden = 64,
                         .max_tokens = 2,
                         .ranks_per_node = 5};
  const std::vector<RanksCall> calls{RanksCall(shape, Routes::uniform, 1), RanksCall(shape, Routes::uniform, 2)};
  on_every_rank(ranks_on(Device::host(), shape, 100s), [&](const Communicator& communicator) {
    ExchangeRank rank(communicator, shape);
    for (const RanksCall& call : calls) rank.run(call);
    communicator.barrier();
  });
}

#if MOELINK_HAVE_UCX && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(RemoteReuse, OverUcx) {
  run_many_times(
      {.num_ranks = 3, .num_experts = 7, .hidden = 16, .max_tokens = 40, .ranks_per_node = 2, .transport = "ucx"}, 400);
}
#endif

#if MOELINK_HAVE_VERBS

std::string soft_nic_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/libmoelink_soft_nic.so";
}
// Before anybody reads the environment.
const bool kHasSoftNic = ::setenv("MOELINK_VERBS", soft_nic_path().c_str(), 1) == 0;

/// What the NIC that this thread opens next will do (tests/soft_nic/mischief.hpp).
void configure_soft_nic(const std::string& words) {
  void* library = ::dlopen(soft_nic_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  void* configure = library != nullptr ? ::dlsym(library, "soft_nic_configure") : nullptr;
  ASSERT_NE(configure, nullptr) << "no soft NIC at " << soft_nic_path();
  reinterpret_cast<void (*)(const char*)>(configure)(words.c_str());
}

TEST(RemoteReuse, SoftNicsThatReorderSplitAndDelayNeverShowAChunkTooEarly) {
  ASSERT_TRUE(kHasSoftNic);
  const auto mischief = [](const std::string& words) {
    return [words](int rank) { configure_soft_nic(words + ",seed=" + std::to_string(rank + 1)); };
  };
  RanksShape shape{
      .num_ranks = 3, .num_experts = 7, .hidden = 256, .max_tokens = 30, .ranks_per_node = 1, .transport = "verbs"};
  run_many_times(shape, 150 / kSlower, mischief("reorder,split,delay_us=100"));
  shape.ranks_per_node = 2;
  run_many_times(shape, 150 / kSlower, mischief("devices=3,reorder,split,delay_us=50"));
  shape.max_tokens = 500;
  run_many_times(shape, 24 / kSlower, mischief("reorder,split,delay_us=20"));
}

/// What each of two ranks on two nodes is told when the NIC of rank 0 does this.
std::vector<std::string> run_until_broken(const std::string& words_of_rank_0) {
  constexpr auto kDeadline = 2s;
  const RanksShape shape{.num_experts = 4, .hidden = 64, .max_tokens = 20, .ranks_per_node = 1, .transport = "verbs"};
  const std::vector<RanksCall> calls = clean_calls(shape, 6);
  std::vector<std::string> errors(2);
  const auto start = Clock::now();
  on_every_rank(ranks_on(Device::host(), shape, kDeadline), [&](const Communicator& communicator) {
    configure_soft_nic(communicator.rank() == 0 ? words_of_rank_0 : "");
    CallLoop loop(communicator, shape, calls);
    try {
      for (int i = 0; i < 1000; ++i) {
        loop.enqueue(i % 6, 0, i % 3 == 0);
        EXPECT_EQ(loop.count_wrong(), 0);
      }
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(communicator.rank())] = error.what();
    }
  });
  EXPECT_LT(Clock::now() - start, 4 * kDeadline);
  return errors;
}

TEST(RemoteFault, ALostPutEndsBothRanksNamingTheOther) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "a write that was under way when the NIC failed may land while the receiver, told by the group, leaves";
#endif
  const std::vector<std::string> errors = run_until_broken("drop_after=40");
  EXPECT_NE(errors[0].find("rank 1"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("rank 0"), std::string::npos) << errors[1];
}

TEST(RemoteFault, ANicThatFailsEndsBothRanksNamingIt) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "a write that was under way when the NIC failed may land while the receiver, told by the group, leaves";
#endif
  for (const std::string& error : run_until_broken("event_after=40,event=device_fatal")) {
    EXPECT_NE(error.find("rank 0"), std::string::npos) << error;
    EXPECT_NE(error.find("fatal"), std::string::npos) << error;
  }
}

#endif

TEST(RemoteRanks, ExchangesThatOneThreadDestroysOneAfterTheOtherWaitForNobody) {
  const RanksShape shape{.num_ranks = 4, .ranks_per_node = 1};
  const RanksCall call(shape, Routes::uniform, 1);
  const auto communicators = ranks_on(Device::host(), shape);
  for (int turn = 0; turn < 3; ++turn) {
    auto ranks = on_every_rank(communicators, [&](const Communicator& communicator) {
      auto rank = std::make_unique<ExchangeRank>(communicator, shape);
      rank->run(call);
      return rank;
    });
    const auto start = Clock::now();
    ranks.clear();
    EXPECT_LT(Clock::now() - start, 1s);
  }
}

TEST(RemoteRanks, TransportsThatDoNotExistAreRefusedByName) {
  const RanksShape shape{.ranks_per_node = 1, .transport = "pigeons"};
  on_every_rank(ranks_on(Device::host(), shape), [&](const Communicator& communicator) {
    try {
      const Exchange exchange(communicator, shape.config());
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_NE(std::string(error.what()).find("pigeons"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace moelink::test

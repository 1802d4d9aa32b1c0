// The same regions, flags and epochs used again and again, by ranks that run ahead and fall behind.
//
// MOELINK_TEST_ITERATIONS runs as many as one has time for.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "exchange/nvlink_calls.hpp"

namespace moelink::test {
namespace {

using namespace std::chrono_literals;

int num_iterations() {
  if (const char* words = std::getenv("MOELINK_TEST_ITERATIONS")) return std::max(std::atoi(words), 1);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return 300;  // they look at every access, not at luck
#else
  return 100'000;
#endif
}

/// Sometimes nothing, sometimes a spin of some microseconds, now and then a nap in which others run ahead.
void delay(std::mt19937& random) {
  const unsigned kind = random() % 256;
  if (kind == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  } else if (kind < 64) {
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(random() % 4000);
         std::chrono::steady_clock::now() < until;) {
    }
  }
}

void run_many_times(const RanksShape& shape, int iterations) {
  constexpr int kCalls = 24;
  constexpr int kInFlight = 8;
  const std::vector<RanksCall> calls = clean_calls(shape, kCalls);
  const auto communicators = ranks_on(Device::host(), shape.num_ranks, 30s);
  on_every_rank(communicators, [&](const Communicator& communicator) {
    CallLoop loop(communicator, shape, calls);
    std::mt19937 delays(static_cast<unsigned>(communicator.rank()) * 977 + 1);
    std::mt19937 choice(5);  // the same on every rank
    int wrong = 0;
    for (int done = 0; done < iterations; done += kInFlight) {
      for (std::size_t slot = 0; slot < kInFlight; ++slot) {
        delay(delays);
        const int which = static_cast<int>(choice() % kCalls);
        loop.enqueue(which, slot, /*split=*/delays() % 4 == 0);  // halves or whole: nobody else's business
      }
      wrong += loop.count_wrong();
    }
    EXPECT_EQ(wrong, 0) << "rank " << communicator.rank();
    communicator.barrier();
  });
}

TEST(NvlinkReuse, ThousandsOfCallsWithRandomDelaysNeverMixEpochs) {
  run_many_times({.num_ranks = 3, .num_experts = 7, .top_k = 2, .hidden = 16, .max_tokens = 3}, num_iterations());
}

TEST(NvlinkReuse, ThousandsOfCallsOfGroupsWithRandomDelaysNeverMixEpochs) {
  run_many_times({.num_ranks = 4, .tp_size = 2, .num_experts = 6, .top_k = 2, .hidden = 16, .max_tokens = 3},
                 num_iterations() / 4);
}

TEST(NvlinkReuse, CallsAcrossTheCrossoverToManyTokensNeverMixEpochs) {
  run_many_times({.num_ranks = 3, .num_experts = 12, .top_k = 4, .hidden = 16, .max_tokens = 400},
                 num_iterations() / 60);
}

}  // namespace
}  // namespace moelink::test

// The same Exchange used again and again, by ranks that run ahead and fall behind, against the reference.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "exchange/nvlink_calls.hpp"

namespace moelink::test {

/// Sometimes nothing, sometimes a spin of some microseconds, now and then a nap in which others run ahead.
inline void delay(std::mt19937& random) {
  const unsigned kind = random() % 256;
  if (kind == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  } else if (kind < 64) {
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(random() % 4000);
         std::chrono::steady_clock::now() < until;) {
    }
  }
}

/// `prepare`, by each rank on its thread before it constructs its Exchange.
inline void run_many_times(
    const RanksShape& shape, int iterations, const std::function<void(int rank)>& prepare = [](int) {}) {
  constexpr int kCalls = 24;
  constexpr int kInFlight = 8;
  const std::vector<RanksCall> calls = clean_calls(shape, kCalls);
  const auto communicators = ranks_on(Device::host(), shape, std::chrono::seconds(30));
  on_every_rank(communicators, [&](const Communicator& communicator) {
    prepare(communicator.rank());
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

}  // namespace moelink::test

// The grid barrier on the host, where ThreadSanitizer checks its ordering argument. The same cases run on a GPU in
// gpu_sync_test.cpp.
#include "moelink/device/sync/grid_barrier.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/fault.hpp"
#include "moelink/device/exec/host_exec.hpp"
#include "runtime/host_queue.hpp"

namespace moelink {
namespace {

/// Now and then a block is late, so that arrivals come in every order.
void delay_at_random(std::minstd_rand& random) {
  switch (random() % 16) {
    case 0:
      std::this_thread::yield();
      break;
    case 1:
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 50));
      break;
    default:
      break;
  }
}

/// Launches with grids of changing size, all on one word. In each, blocks write plain memory, meet, and read what the
/// others wrote: a barrier that lets a block through early, or orders too little, is a wrong value or a data race.
void exercise_barrier(GridBarrierWord& word, int max_grid, int launches, int rounds) {
  HostQueue queue(max_grid);
  std::vector<std::uint64_t> values(static_cast<std::size_t>(max_grid), 0);
  std::uint64_t stamp = 0;
  for (int launch = 0; launch < launches; ++launch) {
    const int grid = 1 + launch % max_grid;
    queue.launch_blocks(grid, 0, [&, stamp, grid, launch](const HostExec& ex) {
      std::minstd_rand random(static_cast<unsigned>(launch * 100 + ex.block() + 1));
      for (int round = 0; round < rounds; ++round) {
        const std::uint64_t now = stamp + static_cast<std::uint64_t>(round) + 1;
        delay_at_random(random);
        values[static_cast<std::size_t>(ex.block())] = now;
        ASSERT_TRUE(grid_barrier(ex, &word, FaultContext{}));
        for (int other = 0; other < grid; ++other) {
          ASSERT_EQ(values[static_cast<std::size_t>(other)], now) << "block " << ex.block() << " of " << grid;
        }
        ASSERT_TRUE(grid_barrier(ex, &word, FaultContext{}));
      }
    });
    stamp += static_cast<std::uint64_t>(rounds);
  }
  queue.synchronize();
}

TEST(GridBarrier, EveryBlockSeesWhatAllWroteWhateverTheGrid) {
  GridBarrierWord word{0};
  exercise_barrier(word, 2, 60, 20);
  exercise_barrier(word, 5, 60, 20);
  exercise_barrier(word, 8, 16, 20);
  EXPECT_EQ(word.value & 0xffffffff, 0U) << "arrivals are left over";
}

TEST(GridBarrier, TheEpochMayWrap) {
  GridBarrierWord word{0xffff'fffe'0000'0000};
  exercise_barrier(word, 3, 12, 5);
  EXPECT_LT(word.value, 0xffff'fffe'0000'0000U) << "the test did not get past the wrap";
}

TEST(GridBarrier, OneBlockPassesWithoutTouchingTheWord) {
  GridBarrierWord word{0};
  EXPECT_TRUE(grid_barrier(HostExec(0, 1, nullptr), &word, FaultContext{}));
  EXPECT_EQ(word.value, 0U);
}

TEST(GridBarrier, ABlockThatNeverComesEndsTheWaitOfTheOthersWithAFault) {
  GridBarrierWord word{0};
  u64 fault_word = 0;
  FaultRecord record{};
  const FaultContext context{.word = &fault_word, .record = &record, .rank = 4, .timeout_ns = 20'000'000};
  HostQueue queue(3);
  std::atomic<int> num_through = 0;
  queue.launch_blocks(3, 0, [&](const HostExec& ex) {
    if (ex.block() != 1 && grid_barrier(ex, &word, context)) {
      num_through.fetch_add(1);
    }
  });
  queue.synchronize();
  EXPECT_EQ(num_through.load(), 0);
  const auto fault = read_fault(record);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->fault.kind, FaultKind::wait_expired);
  EXPECT_EQ(fault->fault.phase, FaultPhase::grid_barrier);
  EXPECT_EQ(fault->rank, 4);
  EXPECT_EQ(fault->expected, 1U);
  EXPECT_EQ(fault->seen, 0U);
}

}  // namespace
}  // namespace moelink

// The host's stream: order, exceptions, and blocks that wait for each other on teams of 1, 2 and many threads.
#include "runtime/host_queue.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "moelink/error.hpp"

namespace moelink {
namespace {

double process_cpu_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

class HostQueueOfThreads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, HostQueueOfThreads, testing::Values(1, 2, 3, 8), testing::PrintToStringParamName());

TEST_P(HostQueueOfThreads, RunsTasksAndLaunchesInTheOrderOfTheirCalls) {
  HostQueue queue(GetParam());
  std::vector<int> seen;
  std::atomic<int> num_blocks = 0;
  for (int i = 0; i < 200; ++i) {
    queue.enqueue([&seen, i] { seen.push_back(i); });
    queue.launch_blocks(5, 0, [&](const HostExec&) { num_blocks.fetch_add(1, std::memory_order_relaxed); });
    queue.enqueue([&, i] { EXPECT_EQ(num_blocks.load(), 5 * (i + 1)); });
  }
  queue.synchronize();
  ASSERT_EQ(seen.size(), 200U);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
  }
}

TEST_P(HostQueueOfThreads, RunsEveryBlockOfAnOversubscribedGridOnce) {
  HostQueue queue(GetParam());
  for (const int grid : {1, 2, 7, 64, 1000}) {
    std::vector<int> runs(static_cast<std::size_t>(grid), 0);  // plain: a block that runs twice is also a data race
    queue.launch_blocks(grid, 0, [&runs, grid](const HostExec& ex) {
      EXPECT_EQ(ex.num_blocks(), grid);
      ++runs[static_cast<std::size_t>(ex.block())];
    });
    queue.synchronize();
    for (const int count : runs) {
      EXPECT_EQ(count, 1);
    }
  }
}

TEST_P(HostQueueOfThreads, RunsAllBlocksOfAResidentGridAtTheSameTime) {
  HostQueue queue(GetParam());
  for (int round = 0; round < 300; ++round) {
    const int grid = 1 + round % GetParam();
    auto arrived = std::make_shared<std::atomic<int>>(0);
    // Hangs (and the test times out) if any block waits for a thread that another block holds.
    queue.launch_blocks(grid, 0, [arrived, grid](const HostExec&) {
      arrived->fetch_add(1);
      while (arrived->load() < grid) {
        std::this_thread::yield();
      }
    });
  }
  queue.synchronize();
}

// A thread that is late for one launch may take a block of the next. It must still wake those it is to wake: the block
// may wait for theirs.
TEST_P(HostQueueOfThreads, WakesAllForAResidentGridThatLateThreadsMeet) {
  HostQueue queue(GetParam());
  const int grid = GetParam();
  for (int round = 0; round < 3000; ++round) {
    queue.launch_blocks(grid, 0, [](const HostExec&) {});  // over before the last has woken up
    auto arrived = std::make_shared<std::atomic<int>>(0);
    queue.launch_blocks(grid, 0, [arrived, grid](const HostExec&) {
      arrived->fetch_add(1);
      while (arrived->load() < grid) {
        std::this_thread::yield();
      }
    });
  }
  queue.synchronize();
}

TEST_P(HostQueueOfThreads, GivesEachRunningBlockScratchOfItsOwn) {
  HostQueue queue(GetParam());
  for (const std::size_t scratch_bytes : {std::size_t{128}, std::size_t{1} << 20, std::size_t{4096}}) {
    queue.launch_blocks(32, scratch_bytes, [scratch_bytes](const HostExec& ex) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ex.scratch()) % 128, 0U);
      auto* bytes = static_cast<unsigned char*>(ex.scratch());
      std::memset(bytes, ex.block(), scratch_bytes);
      std::this_thread::yield();
      for (std::size_t i = 0; i < scratch_bytes; i += 97) {
        ASSERT_EQ(bytes[i], ex.block());
      }
    });
  }
  queue.synchronize();
}

TEST_P(HostQueueOfThreads, ThrowsTheFirstExceptionOnceAndGoesOn) {
  HostQueue queue(GetParam());
  bool ran_after = false;
  queue.launch_blocks(4, 0, [](const HostExec& ex) {
    if (ex.block() == 3) {
      throw std::runtime_error("first");
    }
  });
  queue.enqueue([] { throw std::runtime_error("second"); });
  queue.enqueue([&] { ran_after = true; });
  try {
    queue.synchronize();
    FAIL() << "synchronize() swallowed the exception of a block";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_TRUE(ran_after);
  EXPECT_NO_THROW(queue.synchronize());
}

TEST(HostQueue, FinishesItsWorkBeforeItEnds) {
  int runs = 0;
  {
    HostQueue queue(2);
    for (int i = 0; i < 100; ++i) {
      queue.enqueue([&runs] { ++runs; });
    }
  }
  EXPECT_EQ(runs, 100);
}

TEST(HostQueue, KeepsTheOrderOfEachOfManyCallers) {
  HostQueue queue(2);
  std::array<int, 4> last = {-1, -1, -1, -1};
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < last.size(); ++caller) {
    callers.emplace_back([&queue, &last, caller] {
      for (int i = 0; i < 500; ++i) {
        queue.enqueue([&last, caller, i] {
          EXPECT_EQ(last[caller], i - 1);
          last[caller] = i;
        });
        if (i % 100 == 0) {
          queue.synchronize();
        }
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  queue.synchronize();
  for (const int i : last) {
    EXPECT_EQ(i, 499);
  }
}

TEST(HostQueue, TakesTasksLargerThanANodeAndEndsTheirLives) {
  HostQueue queue(1);
  auto alive = std::make_shared<int>(7);
  std::array<int, 1000> large{};
  large[999] = 42;
  int seen = 0;
  queue.enqueue([large, alive, &seen] { seen = large[999] + *alive; });
  queue.enqueue([alive] {});
  queue.synchronize();
  EXPECT_EQ(seen, 49);
  EXPECT_EQ(alive.use_count(), 1) << "a task outlived its run";
}

TEST(HostQueue, SynchronizeInsideATaskIsAnErrorNotAHang) {
  HostQueue queue(1);
  queue.enqueue([&queue] { queue.synchronize(); });
  EXPECT_THROW(queue.synchronize(), Error);
}

TEST(HostQueue, RefusesAnEmptyGrid) {
  HostQueue queue(1);
  EXPECT_THROW(queue.launch_blocks(0, 0, [](const HostExec&) {}), Error);
  EXPECT_THROW(queue.launch_blocks(1, std::size_t{1} << 40, [](const HostExec&) {}), Error);
}

TEST(HostQueue, BurnsNoCpuWithoutWork) {
  HostQueue queue(8);
  queue.launch_blocks(8, 0, [](const HostExec&) {});
  queue.synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time to fall asleep
  const double before_ms = process_cpu_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(process_cpu_ms() - before_ms, 50.0) << "an idle queue of 8 threads spins";
}

TEST(HostQueue, WakesSleepersWhateverTheDelayBetweenTasks) {
  HostQueue queue(3);
  std::mt19937 random(1);
  std::atomic<int> num_blocks = 0;
  for (int i = 0; i < 300; ++i) {
    queue.launch_blocks(3, 0, [&](const HostExec&) { num_blocks.fetch_add(1); });
    if (i % 3 == 0) {
      queue.synchronize();
    }
    // Around the moment at which waiting threads go from yielding to sleeping.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  }
  queue.synchronize();
  EXPECT_EQ(num_blocks.load(), 900);
}

TEST(HostQueue, NamesItsThreads) {
  HostQueue queue(2);
  std::array<std::string, 2> names;
  const auto own_name = [] {
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    return std::string(name.data());
  };
  std::atomic<int> arrived = 0;
  queue.launch_blocks(2, 0, [&](const HostExec&) {
    names[static_cast<std::size_t>(arrived.fetch_add(1))] = own_name();
    while (arrived.load() < 2) {
      std::this_thread::yield();
    }
  });
  queue.synchronize();
  for (const std::string& name : names) {
    EXPECT_EQ(name.substr(0, 8), "moelink-") << "a thread of the library is called '" << name << "'";
  }
}

}  // namespace
}  // namespace moelink

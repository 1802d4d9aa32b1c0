// A rank that cannot be constructed leaves no other waiting: memory that runs out on one rank, at every allocation.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "moelink/all_reduce.hpp"

namespace {

/// The how-manieth allocation of this thread, from now on, fails; 0: none.
thread_local int countdown = 0;

}  // namespace

/// In place of the C library's: what buffers of the host come from.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size_bytes) {
  if (countdown > 0 && --countdown == 0) return nullptr;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size_bytes) == 0 ? memory : nullptr;
}

namespace moelink::test {
namespace {

/// What each rank's construction throws when the n-th allocation of rank 1 fails; `failed`: there were so many.
std::vector<std::string> construct(int num_ranks, int n, bool& failed) {
  const auto communicators = Communicator::in_process(num_ranks, {.deadline = std::chrono::seconds(20)});
  std::vector<std::string> errors(communicators.size());
  std::vector<std::jthread> threads;  // not on_every_rank(), which itself releases those that wait for a failed rank
  for (std::size_t r = 0; r < communicators.size(); ++r) {
    threads.emplace_back([&, r] {
      countdown = r == 1 ? n : 0;
      try {
        const AllReduce all_reduce(communicators[r], {.max_elements = 100});
        if (r == 1) failed = countdown == 0;
        countdown = 0;
      } catch (const std::exception& error) {
        if (r == 1) failed = countdown == 0;
        countdown = 0;
        errors[r] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

TEST(AllReduceConstruction, MemoryThatRunsOutOnOneRankIsToldToTheOthersAtOnce) {
  int num_failures = 0;
  for (int n = 1; n < 50; ++n) {
    const auto start = std::chrono::steady_clock::now();
    bool failed = false;
    const std::vector<std::string> errors = construct(3, n, failed);
    if (!failed) break;
    ++num_failures;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "allocation " << n;
    EXPECT_NE(errors[1], "") << "allocation " << n;
    for (const std::size_t other : {0U, 2U}) {
      EXPECT_NE(errors[other].find("rank 1 failed"), std::string::npos) << "allocation " << n << ": " << errors[other];
      EXPECT_NE(errors[other].find(errors[1]), std::string::npos)
          << "allocation " << n << ": '" << errors[other] << "' does not say '" << errors[1] << "'";
    }
  }
  EXPECT_GE(num_failures, 3) << "shared memory, fault record and addresses, epochs";
}

}  // namespace
}  // namespace moelink::test

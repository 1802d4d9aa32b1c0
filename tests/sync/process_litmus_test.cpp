// Litmus tests between processes: the wrappers that ranks use on each other's shared memory. (Between threads:
// litmus_test.cpp, where ThreadSanitizer looks on.)
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "moelink/device/ptx/load_store.cuh"

namespace moelink {
namespace {

constexpr u32 kRounds = 20'000;

struct alignas(128) Line {
  u32 value = 0;
};

/// What two processes share.
struct Shared {
  Line x;
  Line payload[kRounds];
  Line flag[kRounds];
  u32 seen[2][kRounds] = {};
};

/// Runs side(shared, 0) here and side(shared, 1) in a child, and looks at the result when both have ended.
template <class Side, class Look>
void in_two_processes(Side&& side, Look&& look) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* shared = new (memory) Shared;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    side(*shared, 1);
    _exit(0);
  }
  side(*shared, 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  look(*shared);
  munmap(memory, sizeof(Shared));
}

TEST(ProcessLitmus, ReleasedFlagIsNeverVisibleBeforeItsPayload) {
  in_two_processes(
      [](Shared& shared, int side) {
        for (u32 round = 0; round < kRounds; ++round) {
          if (side == 0) {
            shared.payload[round].value = 42;
            st_release_sys(&shared.flag[round].value, 1U);
            continue;
          }
          while (ld_acquire_sys(&shared.flag[round].value) == 0) {
            sched_yield();
          }
          shared.seen[1][round] = shared.payload[round].value;
        }
      },
      [](const Shared& shared) {
        for (u32 round = 0; round < kRounds; ++round) {
          ASSERT_EQ(shared.seen[1][round], 42U) << "round " << round;
        }
      });
}

/// The line of the push algorithm: data and tag in one aligned word are seen together or not at all.
TEST(ProcessLitmus, WordWithItsEpochInsideIsSeenWhole) {
  in_two_processes(
      [](Shared& shared, int side) {
        auto* word = reinterpret_cast<u64*>(&shared.x);
        for (u64 epoch = 1; side == 0 && epoch <= kRounds; ++epoch) {
          st_relaxed_sys(word, epoch << 32 | epoch);
        }
        u64 seen = 0;
        while (side == 1 && (seen & 0xffffffff) < kRounds) {
          seen = ld_relaxed_sys(word);
          shared.seen[1][0] += seen >> 32 == (seen & 0xffffffff) ? 0 : 1;
        }
      },
      [](const Shared& shared) { EXPECT_EQ(shared.seen[1][0], 0U) << "halves of different epochs"; });
}

}  // namespace
}  // namespace moelink

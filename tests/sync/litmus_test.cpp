// Litmus tests of the wrappers' host bodies. Two threads run a handful of accesses at the same moment, many times; some
// outcomes are forbidden by the orders in the names. (On a GPU: sync_kernels_test.cpp.)
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "moelink/device/ptx/atomics.cuh"
#include "moelink/device/ptx/fence.cuh"
#include "moelink/device/ptx/load_store.cuh"

namespace moelink {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kRounds = 1000;  // it looks at every access, not at luck
#else
constexpr std::size_t kRounds = 20000;
#endif

/// Calls first(round) and second(round) on two threads at about the same time, round by round, and check(round) in
/// between.
void race(const auto& first, const auto& second, const auto& check) {
  std::atomic<int> num_arrived = 0;
  const auto meet = [&num_arrived](int count) {
    num_arrived.fetch_add(1);
    for (int spins = 0; num_arrived.load() < count; ++spins) {
      if (spins > 1000) {
        sched_yield();
      }
    }
  };
  std::thread other([&] {
    for (int round = 0; round < static_cast<int>(kRounds); ++round) {
      meet(4 * round + 2);
      second(round);
      meet(4 * round + 4);
    }
  });
  for (int round = 0; round < static_cast<int>(kRounds); ++round) {
    meet(4 * round + 2);
    first(round);
    meet(4 * round + 4);
    check(round);
  }
  other.join();
}

struct alignas(128) Line {
  u32 value = 0;
};

/// Message passing: who sees the flag sees the plain payload. ThreadSanitizer calls it a race if the orders do not.
void pass_messages(const auto& publish, const auto& look) {
  std::vector<Line> payload(kRounds);
  std::vector<Line> flag(kRounds);
  race(
      [&](int round) {
        const auto i = static_cast<std::size_t>(round);
        payload[i].value = 42;
        publish(&flag[i].value);
      },
      [&](int round) {
        const auto i = static_cast<std::size_t>(round);
        while (look(&flag[i].value) == 0) {
          sched_yield();
        }
        EXPECT_EQ(payload[i].value, 42U) << "the flag was visible before its payload";
      },
      [](int) {});
}

TEST(MessagePassing, ReleaseStoreAndAcquireLoad) {
  pass_messages([](u32* flag) { st_release_sys(flag, 1U); }, [](u32* flag) { return ld_acquire_sys(flag); });
  pass_messages([](u32* flag) { st_release_gpu(flag, 1U); }, [](u32* flag) { return ld_acquire_gpu(flag); });
}

TEST(MessagePassing, ReleasingAddAndAcquireLoad) {
  pass_messages([](u32* flag) { red_add_release_sys(flag, 1U); }, [](u32* flag) { return ld_acquire_sys(flag); });
  pass_messages([](u32* flag) { atom_add_release_gpu(flag, 1U); }, [](u32* flag) { return ld_acquire_gpu(flag); });
}

TEST(MessagePassing, AcquireReleaseReadModifyWrites) {
  pass_messages([](u32* flag) { atom_exch_acq_rel_sys(flag, 1U); },
                [](u32* flag) { return atom_add_acquire_sys(flag, 0U); });
  pass_messages([](u32* flag) { atom_cas_acq_rel_gpu(flag, 0U, 1U); },
                [](u32* flag) { return atom_cas_acq_rel_gpu(flag, 7U, 7U); });
}

/// Each of two threads stores, fences, and looks for the other's store: rounds in which both missed it.
int count_both_missed(const auto& fence) {
  Line x;
  Line y;
  u32 seen_x = 0;
  u32 seen_y = 0;
  int num_both_missed = 0;
  const auto store_fence_load = [&fence](u32* mine, const u32* other, u32 value) {
    st_relaxed_sys(mine, value);
    fence();
    return ld_relaxed_sys(other);
  };
  race([&](int round) { seen_y = store_fence_load(&x.value, &y.value, static_cast<u32>(round) + 1); },
       [&](int round) { seen_x = store_fence_load(&y.value, &x.value, static_cast<u32>(round) + 1); },
       [&](int round) {
         const u32 now = static_cast<u32>(round) + 1;
         num_both_missed += seen_x != now && seen_y != now ? 1 : 0;
       });
  return num_both_missed;
}

TEST(StoreBuffering, FenceScForbidsThatBothMissTheOthersStore) {
  EXPECT_EQ(count_both_missed([] { fence_sc_sys(); }), 0);
  // The control: without the fence it must happen, or the threads never overlapped and the fence had nothing to forbid.
  int without_fence = 0;
  for (int tries = 0; tries < 10 && without_fence == 0; ++tries) {
    without_fence = count_both_missed([] {});
  }
  if (without_fence == 0 && !HasFailure()) {
    GTEST_SKIP() << "nothing was forbidden, but without the fence both never missed either: this machine cannot tell";
  }
}

TEST(Coherence, NoAddIsLostAndTicketsAreUnique) {
  u64 counter = 0;
  std::vector<std::vector<u64>> tickets(3);
  std::vector<std::thread> threads;
  threads.reserve(tickets.size());
  for (auto& mine : tickets) {
    threads.emplace_back([&counter, &mine] {
      for (std::size_t i = 0; i < kRounds; ++i) {
        mine.push_back(atom_add_relaxed_gpu(&counter, u64{1}));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(counter, 3 * kRounds);
  std::vector<bool> taken(3 * kRounds, false);
  for (const auto& mine : tickets) {
    for (const u64 ticket : mine) {
      EXPECT_FALSE(taken[ticket]) << ticket;
      taken[ticket] = true;
    }
  }
}

TEST(WordPairs, EachHalfIsReadWhole) {
  WordPair pair{0, 0};
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (u64 epoch = 1; epoch <= kRounds; ++epoch) {
      const u64 word = epoch << 32 | epoch;
      st_relaxed_sys_pair(&pair, {word, word});
    }
    stop = true;
  });
  while (!stop.load()) {
    const WordPair seen = ld_relaxed_sys_pair(&pair);
    EXPECT_EQ(seen.first >> 32, seen.first & 0xffffffff);
    EXPECT_EQ(seen.second >> 32, seen.second & 0xffffffff);
  }
  writer.join();
}

}  // namespace
}  // namespace moelink

// Clocks and pauses.
#pragma once

#include "moelink/protocol/types.hpp"
#if !MOELINK_ON_DEVICE
#include <sched.h>

#include <chrono>
#include <thread>
#endif

namespace moelink {

/// Nanoseconds of a clock that all blocks of one device share (on a GPU it moves in steps of up to 1 us). For
/// deadlines: it is not the host's clock.
MOELINK_DEVICE u64 clock_ns() {
#if MOELINK_ON_DEVICE
  u64 ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
#else
  return static_cast<u64>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
#endif
}

/// Between two polls of a wait that has polled `polls` times already. A GPU polls at full speed for some milliseconds,
/// then leaves the memory system alone for a while between polls. The host spins briefly, then yields, then sleeps: the
/// thread that it waits for may need this core.
MOELINK_DEVICE void pause_between_polls(u32 polls) {
#if MOELINK_ON_DEVICE
  constexpr u32 kPollsAtFullSpeed = 8192;
  constexpr u32 kSleepNs = 200;
  if (polls >= kPollsAtFullSpeed) {
    asm volatile("nanosleep.u32 %0;" ::"n"(kSleepNs));
  }
#else
  constexpr u32 kSpins = 64;
  constexpr u32 kYields = 1024;
  if (polls < kSpins) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  } else if (polls < kSpins + kYields) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
#endif
}

}  // namespace moelink

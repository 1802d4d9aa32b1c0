#include "runtime/signal.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <thread>

namespace moelink {
namespace {

// About 2 us of spinning and 30 us of yielding: longer than the gap between two launches of a busy stream, short enough
// that a stream without work is asleep before anybody notices.
constexpr int kSpins = 64;
constexpr int kYields = 64;

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4,
              "a futex is a 32-bit word");

void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value) noexcept {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation | FUTEX_PRIVATE_FLAG, value, nullptr,
                 nullptr, 0);
}

}  // namespace

void Signal::wait_while(std::uint32_t seen) noexcept {
  for (int i = 0; i < kSpins + kYields; ++i) {
    if (count() != seen) {
      return;
    }
    if (i < kSpins) {
      pause_cpu();
    } else {
      sched_yield();
    }
  }
  sleep_while(seen);
}

void Signal::sleep_while(std::uint32_t seen) noexcept {
  num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (count_.load(std::memory_order_seq_cst) == seen) {
    // Returns at once if the count has moved on; spurious returns are caught by the loop.
    futex(&count_, FUTEX_WAIT, seen);
  }
  num_sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Signal::wake_all() noexcept { futex(&count_, FUTEX_WAKE, INT_MAX); }

}  // namespace moelink

// A counter that threads wait on: they spin briefly, then yield, then sleep in the kernel.
#pragma once

#include <atomic>
#include <cstdint>

namespace moelink {

/// Counts up, from any thread; wraps. Waiting threads see everything that was written before the count they wait for.
class Signal {
 public:
  [[nodiscard]] std::uint32_t count() const noexcept { return count_.load(std::memory_order_acquire); }

  /// Adds one and wakes whoever sleeps.
  void raise() noexcept {
    // Sequentially consistent, and a read-modify-write: with the load below it forms one half of a store-buffering
    // pattern whose other half is in sleep_while(). Either the sleeper sees the new count or we see the sleeper.
    count_.fetch_add(1, std::memory_order_seq_cst);
    if (num_sleepers_.load(std::memory_order_seq_cst) != 0) {
      wake_all();
    }
  }

  /// Returns once the count differs from `seen`. A thread that waits long costs no CPU time.
  void wait_while(std::uint32_t seen) noexcept;

 private:
  void sleep_while(std::uint32_t seen) noexcept;
  void wake_all() noexcept;

  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint32_t> num_sleepers_{0};
};

}  // namespace moelink

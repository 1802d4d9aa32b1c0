// What a thread that polls does while nothing happens.
#pragma once

#include <chrono>
#include <thread>

namespace moelink {

/// Spins for ever where there are processors to spare and somebody may be in a hurry; else spins briefly, then yields, and
/// sleeps once nothing has happened for a while and nothing is under way.
class Idle {
 public:
  explicit Idle(bool spin) noexcept : spin_(spin) {}

  /// After one round: whether it found work, whether some is under way, and whether there can be any.
  void step(bool found_work, bool is_under_way, bool has_channels) {
    constexpr int kSpins = 64;
    constexpr int kYields = 2000;
    constexpr std::chrono::microseconds kSleep{50};
    if (found_work) {
      rounds_ = 0;
      return;
    }
    if ((spin_ && has_channels) || ++rounds_ < kSpins) return;
    if (is_under_way || rounds_ < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }

 private:
  bool spin_;
  int rounds_ = 0;
};

}  // namespace moelink

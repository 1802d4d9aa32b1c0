// What a thread that polls does while nothing happens.
#pragma once

#include <chrono>
#include <thread>

namespace moelink {

/// Spins for ever where there are processors to spare and somebody may be in a hurry; else yields, and sleeps once
/// nothing has happened for a while and nothing is under way: soon, if those who wait for the work can do it
/// themselves.
class Idle {
 public:
  Idle(bool spins, bool has_helpers) noexcept : spins_(spins), most_yields_(has_helpers ? 64 : 2000) {}

  /// Somebody else does the work.
  void rest() {
    constexpr std::chrono::microseconds kRest{100};
    rounds_ = 0;
    std::this_thread::sleep_for(kRest);
  }

  /// After one round: whether it found work, whether some is under way, and whether there can be any.
  void step(bool found_work, bool is_under_way, bool has_channels) {
    constexpr std::chrono::microseconds kSleep{50};
    if (found_work) {
      rounds_ = 0;
      return;
    }
    if (spins_ && has_channels) return;
    // No spinning before: a round is a system call or two, and who makes the work may be waiting for this processor.
    if (is_under_way || ++rounds_ < most_yields_) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }

 private:
  bool spins_;
  int most_yields_;
  int rounds_ = 0;
};

}  // namespace moelink

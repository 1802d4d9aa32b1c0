// A point in time after which nobody waits any longer.
#pragma once

#include <algorithm>
#include <chrono>

namespace moelink {

class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds from_now) : end_(std::chrono::steady_clock::now() + from_now) {}

  [[nodiscard]] bool passed() const { return std::chrono::steady_clock::now() >= end_; }

  /// Milliseconds left for poll(), at most `limit_ms`, at least 0.
  [[nodiscard]] int left_ms(int limit_ms) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, limit_ms));
  }

 private:
  std::chrono::steady_clock::time_point end_;
};

}  // namespace moelink

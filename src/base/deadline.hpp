// A point in time until which something may be waited for.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace moelink {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(Clock::time_point when) noexcept : when_(when) {}
  [[nodiscard]] static Deadline after(std::chrono::milliseconds duration) { return Deadline(Clock::now() + duration); }

  [[nodiscard]] Clock::time_point when() const noexcept { return when_; }
  [[nodiscard]] bool expired() const { return Clock::now() >= when_; }
  /// Never negative, and rounded up, so that waiting for it does not spin at the end.
  [[nodiscard]] std::chrono::milliseconds remaining() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - Clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  }
  /// For poll(2).
  [[nodiscard]] int poll_timeout_ms() const {
    constexpr std::int64_t kLongest = 3'600'000;
    return static_cast<int>(std::min<std::int64_t>(remaining().count(), kLongest));
  }
  [[nodiscard]] Deadline earlier_of(Deadline other) const noexcept { return Deadline(std::min(when_, other.when_)); }

 private:
  Clock::time_point when_;
};

/// "60 s", "250 ms".
[[nodiscard]] inline std::string to_string(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

}  // namespace moelink

// What a check found.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace moelink::perf {

/// Counts wrong values and keeps the words for the first one that was reported. Thread-safe.
class Mismatches {
 public:
  /// `describe()` is only called for the first.
  template <class Describe>
  void add(std::int64_t count, Describe&& describe) {
    if (count == 0) return;
    const std::scoped_lock lock(mutex_);
    if (count_ == 0) first_ = describe();
    count_ += count;
  }

  [[nodiscard]] std::int64_t count() const {
    const std::scoped_lock lock(mutex_);
    return count_;
  }
  [[nodiscard]] std::string first() const {
    const std::scoped_lock lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;
  std::int64_t count_ = 0;
  std::string first_;
};

}  // namespace moelink::perf

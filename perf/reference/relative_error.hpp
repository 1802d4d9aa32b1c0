// How far values are from others that they stand for.
#pragma once

#include <cmath>
#include <mutex>

namespace moelink::perf {

/// The root of summed squares of differences, over that of the values that are right. Thread-safe.
class RelativeError {
 public:
  void add(double squared_differences, double squared_values) {
    const std::scoped_lock lock(mutex_);
    squared_differences_ += squared_differences;
    squared_values_ += squared_values;
  }

  /// Of several ranks' sums.
  [[nodiscard]] static double of(double squared_differences, double squared_values) {
    return squared_values > 0 ? std::sqrt(squared_differences / squared_values) : 0;
  }
  [[nodiscard]] double squared_differences() const {
    const std::scoped_lock lock(mutex_);
    return squared_differences_;
  }
  [[nodiscard]] double squared_values() const {
    const std::scoped_lock lock(mutex_);
    return squared_values_;
  }

 private:
  mutable std::mutex mutex_;
  double squared_differences_ = 0;
  double squared_values_ = 0;
};

}  // namespace moelink::perf

// A thread that ends collectives of another library when they take too long, or when the group of ranks has failed.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/wakeup.hpp"

namespace moelink {

/// Looks some twenty times within the deadline. The functions are called by its thread and must not throw.
class CollectiveWatch {
 public:
  struct Duties {
    std::chrono::milliseconds deadline{};
    /// How long the oldest call has been running; zero if none is.
    std::function<std::chrono::milliseconds()> longest_running;
    /// Called once, when that exceeds the deadline: tells the group, which comes back as group_failed().
    std::function<void(std::chrono::milliseconds)> report_late;
    /// Called once, after group_failed(): ends what runs.
    std::function<void()> abort;
  };

  explicit CollectiveWatch(Duties duties);
  ~CollectiveWatch();
  CollectiveWatch(const CollectiveWatch&) = delete;
  CollectiveWatch& operator=(const CollectiveWatch&) = delete;

  /// From any thread; does not wait.
  void group_failed() noexcept;

 private:
  void run();

  Duties duties_;
  Wakeup wakeup_;
  std::atomic<bool> group_failed_{false};
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

}  // namespace moelink

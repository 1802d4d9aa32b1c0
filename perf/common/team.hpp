// A few threads that stay: to make data, to check results, and to measure how fast memory can be copied.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace moelink::perf {

class Team {
 public:
  /// `num_threads` 0: one per core.
  explicit Team(int num_threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  /// Runs `work(thread)` on every thread, the caller being thread 0, and waits. `work` must not throw.
  void run(const std::function<void(int thread)>& work);

  /// Runs `work(begin, end)` over pieces of [0, count) of at most `grain`, on whatever thread is free.
  void for_ranges(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& work);

  /// Copies by all threads, or by the caller alone what is too small to share.
  void copy(void* to, const void* from, std::int64_t bytes);

  /// Less is not worth waking a thread for.
  static constexpr std::int64_t kSmallestShareBytes = 64 << 10;

 private:
  void work_until_stopped(int thread);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(int)>* work_ = nullptr;
  std::uint64_t round_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace moelink::perf

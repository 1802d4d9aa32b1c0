// Threads for connections: as many as there are, up to a limit; a connection that streams keeps its thread all the
// while.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace moelink::engine {

class ConnectionThreads final : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(std::size_t most) : most_(most) {}

  /// Starts a thread if none is idle; beyond the limit, connections wait for one.
  void enqueue(std::function<void()> connection) override;
  /// Waits for all connections.
  void shutdown() override;

 private:
  void work();

  std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::size_t num_idle_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace moelink::engine

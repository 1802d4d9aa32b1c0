#include "engine/serve/connection_threads.hpp"

#include <system_error>
#include <utility>

namespace moelink::engine {

void ConnectionThreads::enqueue(std::function<void()> connection) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(connection));
  if (waiting_.size() > num_idle_ && threads_.size() < most_) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) {
        throw;  // else one of those that are there takes it
      }
    }
  }
  changed_.notify_one();
}

void ConnectionThreads::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void ConnectionThreads::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++num_idle_;
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    --num_idle_;
    if (waiting_.empty()) {
      return;
    }
    const std::function<void()> connection = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    connection();
    lock.lock();
  }
}

}  // namespace moelink::engine

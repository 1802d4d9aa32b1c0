#include "engine/desk/reply.hpp"

#include <utility>

namespace moelink::engine {

Reply::News Reply::wait(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, longest, [&] { return !news_.tokens.empty() || news_.finish; });
  return std::exchange(news_, {});
}

void Reply::push(Token token) {
  {
    const std::lock_guard lock(mutex_);
    if (finished_) {
      return;
    }
    news_.tokens.push_back(token);
  }
  arrived_.notify_one();
}

void Reply::finish(Finish finish) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) {
      return;
    }
    news_.finish = std::move(finish);
  }
  arrived_.notify_one();
}

}  // namespace moelink::engine

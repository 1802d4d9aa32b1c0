// What comes of one request, on its way from the thread of the steps to the one that answers the client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/requests/request.hpp"

namespace moelink::engine {

class Reply {
 public:
  /// What has come since the last call; nothing if nothing came in time.
  struct News {
    std::vector<Token> tokens;
    std::optional<Finish> finish;  ///< the last news
  };
  [[nodiscard]] News wait(std::chrono::milliseconds longest);

  void push(Token token);
  /// Only the first one counts.
  void finish(Finish finish);

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  News news_;
  bool finished_ = false;
};

}  // namespace moelink::engine

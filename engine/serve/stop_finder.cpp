#include "engine/serve/stop_finder.hpp"

#include <algorithm>
#include <utility>

namespace moelink::engine {

std::string StopFinder::push(std::string_view text) {
  if (found_) {
    return {};
  }
  held_ += text;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    end = std::min(end, held_.find(stop));
  }
  found_ = end != std::string::npos;
  if (!found_) {
    end = held_.size() - num_that_may_begin_a_stop();
  }
  std::string certain = held_.substr(0, end);
  held_.erase(0, found_ ? std::string::npos : end);
  return certain;
}

std::string StopFinder::finish() { return std::exchange(held_, {}); }

std::size_t StopFinder::num_that_may_begin_a_stop() const {
  std::size_t most = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, held_.size()); size > most; --size) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, size))) {
        most = size;
      }
    }
  }
  return most;
}

}  // namespace moelink::engine

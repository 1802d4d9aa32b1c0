// Where a growing text is to end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moelink::engine {

/// Hands text out up to the first of some stop texts. What may be the start of one is held back until that is known.
class StopFinder {
 public:
  /// None of `stops` is empty.
  explicit StopFinder(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// The text that is certain now; nothing once a stop was found.
  [[nodiscard]] std::string push(std::string_view text);
  [[nodiscard]] bool found() const noexcept { return found_; }
  /// What was held back, when no more text comes.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::size_t num_that_may_begin_a_stop() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace moelink::engine

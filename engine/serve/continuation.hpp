// The text of one request, as its tokens come.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/desk/desk.hpp"
#include "engine/serve/stop_finder.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace moelink::engine {

/// How a continuation ended.
struct ContinuationEnd {
  FinishReason reason = FinishReason::stop;
  std::string error;            ///< of one that failed, or was cancelled because the server ends
  std::int64_t num_tokens = 0;  ///< up to the stop text, if there was one
  [[nodiscard]] bool is_good() const noexcept { return reason == FinishReason::stop || reason == FinishReason::length; }
};

class Continuation {
 public:
  Continuation(std::unique_ptr<OpenRequest> request, const Tokenizer& tokenizer, std::vector<std::string> stops)
      : request_(std::move(request)), decoder_(tokenizer), stops_(std::move(stops)) {}

  struct Piece {
    std::string text;  ///< may be empty
    std::optional<ContinuationEnd> end;
  };
  /// What has come since the last call; nothing if nothing came in time. Not after the end.
  [[nodiscard]] Piece next(std::chrono::milliseconds longest);

 private:
  std::unique_ptr<OpenRequest> request_;
  StreamDecoder decoder_;
  StopFinder stops_;
  std::int64_t num_tokens_ = 0;
};

}  // namespace moelink::engine

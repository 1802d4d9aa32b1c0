// What is sent back for one completion, in OpenAI's form.
#pragma once

#include <cstdint>
#include <string>

#include "engine/serve/continuation.hpp"

namespace moelink::engine {

class Answer {
 public:
  /// `number` makes its id unique on this server.
  Answer(std::uint64_t number, std::string model, std::int64_t num_prompt_tokens, bool include_usage);

  /// The body of an answer that comes at once.
  [[nodiscard]] std::string whole(const std::string& text, const ContinuationEnd& end) const;
  /// One server-sent event with a part of the text.
  [[nodiscard]] std::string event(const std::string& text) const;
  /// The last events of a stream.
  [[nodiscard]] std::string end_events(const ContinuationEnd& end) const;

 private:
  std::string id_;
  std::string model_;
  std::int64_t num_prompt_tokens_;
  bool include_usage_;
  std::int64_t created_;
};

}  // namespace moelink::engine

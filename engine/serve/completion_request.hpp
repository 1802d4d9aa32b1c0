// What the body of a POST to /v1/completions asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/requests/request.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace moelink::engine {

struct CompletionRequest {
  Request request;
  std::vector<std::string> stops;  ///< texts that end it, and are not handed out
  bool stream = false;
  bool include_usage = false;  ///< streaming: a last event with numbers of tokens
};

/// OpenAI's fields model, prompt (a text, or an array of token ids), max_tokens (default 16), temperature (1), top_p
/// (1), seed (drawn), stop, stream, stream_options; and as other servers have them top_k (0 or -1: all) and ignore_eos.
/// Throws ApiError 400, naming the field, for what is no JSON, has another type or is out of range; also for fields
/// that are not known, or not implemented and not at the value that changes nothing: ignoring them would answer another
/// question. 404 for a model other than `model_name`.
[[nodiscard]] CompletionRequest parse_completion(std::string_view body, const Tokenizer& tokenizer,
                                                 const std::string& model_name);

}  // namespace moelink::engine

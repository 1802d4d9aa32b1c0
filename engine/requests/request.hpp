// What is asked of the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/requests/sampling.hpp"
#include "engine/tokenizer/bpe.hpp"

namespace moelink::engine {

enum class RequestId : std::uint64_t {};

enum class FinishReason : std::uint8_t {
  stop,       ///< a stop token or the model's end token was picked
  length,     ///< max_tokens were generated
  cancelled,  ///< cancel(), or on_token said so
  failed      ///< Finish::error says why
};
[[nodiscard]] std::string_view name_of(FinishReason reason) noexcept;

/// How a request ended.
struct Finish {
  FinishReason reason = FinishReason::stop;
  std::string error;                   ///< of a request that failed
  std::int64_t num_tokens = 0;         ///< that were handed out
  std::int64_t num_reused_tokens = 0;  ///< of the prompt: their keys and values were in the cache already
  double time_to_first_token_us = 0;   ///< from submit(); 0 if there was none
  double time_per_token_us = 0;        ///< from the first to the last, on average; 0 with fewer than two
};

struct Request {
  std::vector<Token> prompt;
  std::int64_t max_tokens = 0;  ///< to generate; 0: as many as sequences can hold
  SamplingOptions sampling = {};
  std::vector<Token> stop_tokens = {};  ///< besides those of the model; the one that is met is not handed out
  bool ignore_end_tokens = false;       ///< goes on behind those of the model, which are handed out
  /// Both are called by Engine::step(), one token after the other; they must not call the engine, except for cancel().
  /// `false`: nobody listens any more, the request is cancelled. What they throw ends their request alone, as failed.
  std::function<bool(Token)> on_token = {};
  std::function<void(const Finish&)> on_finish = {};
};

}  // namespace moelink::engine

// A request while the engine works on it.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <unordered_set>

#include "engine/requests/request.hpp"
#include "engine/requests/sampling.hpp"
#include "engine/requests/scheduler.hpp"

namespace moelink::engine {

class ActiveRequest {
 public:
  /// `stop_tokens`: of the model and the request. Throws for sampling values out of range.
  ActiveRequest(Request request, std::unordered_set<Token> stop_tokens);

  [[nodiscard]] RequestId id() const noexcept { return id_; }
  void set_id(RequestId id) noexcept { id_ = id; }
  /// The prompt's tokens, handed over to the scheduler.
  [[nodiscard]] std::vector<Token> take_prompt() { return std::move(request_.prompt); }

  /// Picks the next token and hands it out; how the request ends, if it does.
  [[nodiscard]] std::optional<FinishReason> advance(std::span<const float> logits, Sequence& sequence);

  /// Tells whoever waits for it. What on_finish throws is dropped: there is nobody left to tell.
  void finish(FinishReason reason, std::int64_t num_reused_tokens) noexcept;
  void fail(const std::string& why) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::optional<FinishReason> hand_out(Token token);

  RequestId id_{};
  Request request_;
  std::unordered_set<Token> stop_tokens_;
  Sampler sampler_;
  std::int64_t num_tokens_ = 0;
  std::string error_;
  Clock::time_point submitted_ = Clock::now();
  Clock::time_point first_;
  Clock::time_point last_;
};

}  // namespace moelink::engine

#include "engine/requests/active_request.hpp"

#include <exception>

namespace moelink::engine {

ActiveRequest::ActiveRequest(Request request, std::unordered_set<Token> stop_tokens)
    : request_(std::move(request)), stop_tokens_(std::move(stop_tokens)), sampler_(request_.sampling) {}

std::optional<FinishReason> ActiveRequest::advance(std::span<const float> logits, Sequence& sequence) {
  const std::optional<Token> token = sampler_.pick(logits, static_cast<std::uint64_t>(num_tokens_));
  if (!token) {
    error_ = "the model found no logit that is a number";
    return FinishReason::failed;
  }
  if (stop_tokens_.contains(*token)) {
    return FinishReason::stop;
  }
  sequence.tokens.push_back(*token);
  return hand_out(*token);
}

std::optional<FinishReason> ActiveRequest::hand_out(Token token) {
  last_ = Clock::now();
  if (num_tokens_++ == 0) {
    first_ = last_;
  }
  try {
    if (request_.on_token && !request_.on_token(token)) {
      return FinishReason::cancelled;
    }
  } catch (const std::exception& error) {
    error_ = error.what();
    return FinishReason::failed;
  }
  if (num_tokens_ == request_.max_tokens) {
    return FinishReason::length;
  }
  return {};
}

void ActiveRequest::finish(FinishReason reason, std::int64_t num_reused_tokens) noexcept {
  if (!request_.on_finish) {
    return;
  }
  const auto us = [](Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); };
  Finish finish{
      .reason = reason, .error = std::move(error_), .num_tokens = num_tokens_, .num_reused_tokens = num_reused_tokens};
  if (num_tokens_ > 0) {
    finish.time_to_first_token_us = us(first_ - submitted_);
  }
  if (num_tokens_ > 1) {
    finish.time_per_token_us = us(last_ - first_) / static_cast<double>(num_tokens_ - 1);
  }
  try {
    request_.on_finish(finish);
  } catch (...) {  // said in the header
  }
}

void ActiveRequest::fail(const std::string& why) noexcept {
  error_ = why;
  finish(FinishReason::failed, 0);
}

}  // namespace moelink::engine

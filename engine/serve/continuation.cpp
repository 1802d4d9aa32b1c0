#include "engine/serve/continuation.hpp"

namespace moelink::engine {

Continuation::Piece Continuation::next(std::chrono::milliseconds longest) {
  Reply::News news = request_->wait(longest);
  Piece piece;
  for (const Token token : news.tokens) {
    piece.text += stops_.push(decoder_.push(token));
    ++num_tokens_;
    if (stops_.found()) {
      request_->leave(FinishReason::stop);
      piece.end = {.reason = FinishReason::stop, .error = {}, .num_tokens = num_tokens_};
      return piece;
    }
  }
  if (news.finish) {
    piece.text += stops_.push(decoder_.finish());
    const FinishReason reason = stops_.found() ? FinishReason::stop : news.finish->reason;
    piece.text += stops_.finish();
    piece.end = {.reason = reason, .error = std::move(news.finish->error), .num_tokens = num_tokens_};
  }
  return piece;
}

}  // namespace moelink::engine

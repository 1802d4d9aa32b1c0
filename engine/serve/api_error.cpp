#include "engine/serve/api_error.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/desk/desk.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

constexpr int kBadRequest = 400;
constexpr int kTooManyRequests = 429;
constexpr int kInternalError = 500;
constexpr int kUnavailable = 503;

/// Clients are told what is wrong, not where in the source that was found: "code: sentence [file:line]".
std::string sentence_of(const Error& error) {
  std::string_view words = error.what();
  const std::string_view code = name_of(error.code());
  if (words.starts_with(code) && words.substr(code.size()).starts_with(": ")) {
    words.remove_prefix(code.size() + 2);
  }
  if (const std::size_t place = words.rfind(" ["); place != std::string_view::npos && words.ends_with(']')) {
    words = words.substr(0, place);
  }
  return std::string(words);
}

const char* type_of(int status) {
  if (status == kTooManyRequests) {
    return "rate_limit_error";
  }
  return status < kInternalError ? "invalid_request_error" : "server_error";
}

}  // namespace

std::string ApiError::body() const {
  const auto or_null = [](const std::string& words) {
    return words.empty() ? nlohmann::json(nullptr) : nlohmann::json(words);
  };
  const nlohmann::json body = {{"error",
                                {{"message", message_},
                                 {"type", type_of(status_)},
                                 {"param", or_null(details_.param)},
                                 {"code", or_null(details_.code)}}}};
  // Words of a request may stand in the message.
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ApiError ApiError::of(const std::exception& error) {
  if (const auto* mine = dynamic_cast<const ApiError*>(&error)) {
    return *mine;
  }
  if (const auto* not_now = dynamic_cast<const NotNow*>(&error)) {
    return {not_now->reason() == NotNow::Reason::too_many ? kTooManyRequests : kUnavailable, not_now->what()};
  }
  if (const auto* refused = dynamic_cast<const Error*>(&error)) {
    switch (refused->code()) {
      case ErrorCode::capacity:
        return {kBadRequest, sentence_of(*refused), {.code = "context_length_exceeded"}};
      case ErrorCode::invalid_argument:
      case ErrorCode::unsupported:
        return {kBadRequest, sentence_of(*refused)};
      default:
        return {kInternalError, sentence_of(*refused)};
    }
  }
  return {kInternalError, error.what()};
}

}  // namespace moelink::engine

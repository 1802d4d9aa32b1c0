// What a client is told when it does not get what it asked for, in OpenAI's form.
#pragma once

#include <exception>
#include <string>

namespace moelink::engine {

struct ApiErrorDetails {
  std::string param = {};  ///< the field of the request that is to blame; empty: none
  std::string code = {};   ///< for programs; empty: none
};

class ApiError : public std::exception {
 public:
  ApiError(int status, std::string message, ApiErrorDetails details = {})
      : status_(status), message_(std::move(message)), details_(std::move(details)) {}

  [[nodiscard]] int status() const noexcept { return status_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }
  /// {"error": {"message", "type", "param", "code"}}
  [[nodiscard]] std::string body() const;

  /// Of whatever handling a request has thrown: what the client did wrong is 400, the rest its own status or 500.
  [[nodiscard]] static ApiError of(const std::exception& error);

 private:
  int status_;
  std::string message_;
  ApiErrorDetails details_;
};

}  // namespace moelink::engine

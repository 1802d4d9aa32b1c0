#include "moelink/error.hpp"

#include <string>

namespace moelink {
namespace {

std::string file_name_of(const std::source_location& where) {
  const std::string_view path = where.file_name();
  const auto slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace

std::string_view name_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::out_of_order:
      return "out_of_order";
    case ErrorCode::capacity:
      return "capacity";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::data:
      return "data";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::peer:
      return "peer";
    case ErrorCode::aborted:
      return "aborted";
    case ErrorCode::cuda:
      return "cuda";
    case ErrorCode::compile:
      return "compile";
    case ErrorCode::system:
      return "system";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& message, const std::source_location& where)
    : std::runtime_error(std::string(name_of(code)) + ": " + message + " [" + file_name_of(where) + ":" +
                         std::to_string(where.line()) + "]"),
      code_(code),
      where_(where) {}

}  // namespace moelink

// Errors of operating-system calls.
#pragma once

#include <cerrno>
#include <source_location>
#include <string>
#include <system_error>

#include "moelink/error.hpp"

namespace moelink {

/// An Error for a call that just set errno: "<what>: <the system's words> (errno 2)".
[[nodiscard]] inline Error system_error(const std::string& what, int error = errno,
                                        const std::source_location& where = std::source_location::current()) {
  return Error(ErrorCode::system,
               what + ": " + std::generic_category().message(error) + " (errno " + std::to_string(error) + ")", where);
}

}  // namespace moelink

// Errors: exceptions with a code, a sentence that names the value and what was expected, and the source location.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

#include "moelink/export.hpp"

namespace moelink {

enum class ErrorCode {
  invalid_argument,    ///< a value the caller passed cannot be used; nothing was enqueued
  out_of_order,        ///< a call in a phase that does not allow it (second dispatch before combine, ...)
  capacity,            ///< memory or a declared maximum does not suffice
  unsupported,         ///< this build, device or driver cannot do it
  data,                ///< a data error seen on the device: rows were dropped (bad ids, capacity exceeded)
  mismatch,            ///< ranks disagree about a configuration
  timeout,             ///< a wait on another rank expired
  peer,                ///< a peer failed, left or sent garbage
  aborted,             ///< abort() was called, here or on a peer
  cuda,                ///< the CUDA driver reported an error
  compile,             ///< a kernel could not be compiled
  system,              ///< an operating-system call failed
};

[[nodiscard]] MOELINK_EXPORT std::string_view name_of(ErrorCode code) noexcept;

/// The one exception type of the library. what() is "code: sentence [file:line]".
class MOELINK_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message,
        const std::source_location& where = std::source_location::current());

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  ErrorCode code_;
  std::source_location where_;
};

}  // namespace moelink

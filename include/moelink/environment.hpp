// The environment variables of the library, for --help.
#pragma once

#include <string>

#include "moelink/export.hpp"

namespace moelink {

/// One line per environment variable that the library reads: its name, what it does and its default.
[[nodiscard]] MOELINK_EXPORT std::string describe_environment();

/// Throws ErrorCode::invalid_argument, naming the variable, if one that is set is not what it should be. What is read
/// is read once: later changes have no effect.
MOELINK_EXPORT void check_environment();

}  // namespace moelink

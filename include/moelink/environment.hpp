// The environment variables of the library, for --help.
#pragma once

#include <string>

#include "moelink/export.hpp"

namespace moelink {

/// One line per environment variable that the library reads: its name, what it does and its default.
[[nodiscard]] MOELINK_EXPORT std::string describe_environment();

}  // namespace moelink

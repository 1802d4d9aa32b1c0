// Headers of users, beside the library's own.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "jit/sources.hpp"

namespace moelink {

/// The embedded sources and `headers` (name, text), kept as long as the process lives: equal headers are kept once.
/// Throws invalid_argument for a name that the library has itself, or that stands there twice.
[[nodiscard]] SourceSet with_user_sources(std::span<const std::pair<std::string, std::string>> headers);

}  // namespace moelink

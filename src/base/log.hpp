// Warnings: what costs the user something but stops nothing.
#pragma once

#include <string_view>

namespace moelink {

/// Prints "moelink: warning: <sentence>" to stderr, once per process for equal sentences. Silent if MOELINK_WARNINGS=0.
/// Never on a hot path: takes a lock and allocates.
void warn_once(std::string_view sentence);

}  // namespace moelink

// Sentences from parts, for error messages: text("tensor ", name, " has ", n, " elements").
#pragma once

#include <sstream>
#include <string>

namespace moelink::engine {

template <class... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace moelink::engine

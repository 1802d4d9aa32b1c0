// Sentences from parts, for error messages and reports: text("hidden is ", hidden, "; expected ..."). g++ 12 has no
// std::format.
#pragma once

#include <sstream>
#include <string>

namespace moelink {

template <class... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace moelink

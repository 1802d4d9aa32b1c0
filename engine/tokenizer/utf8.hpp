// UTF-8: what is valid, and where characters end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moelink::engine {

/// The start of a string, read as one character.
struct Utf8Step {
  std::size_t num_bytes = 0;  ///< of the character; if invalid, of the longest start of one that it could have been
  char32_t character = 0;
  bool valid = false;
  bool incomplete = false;  ///< not valid, but more bytes could make it so
};

/// Reads the first character of a non-empty string (Unicode 15, table 3-7: no surrogates, no overlong forms).
[[nodiscard]] Utf8Step first_character(std::string_view text) noexcept;

/// Position of the first byte that is not part of a valid character, or text.size().
[[nodiscard]] std::size_t valid_prefix(std::string_view text) noexcept;

void append_utf8(std::string& out, char32_t character);

/// U+FFFD, which stands for bytes that are no character.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace moelink::engine

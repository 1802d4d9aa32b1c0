// The alphabet of byte-level vocabularies: each byte has a printable character of its own, so that a vocabulary is text.
// Printable Latin-1 stands for itself; the other 68 bytes are U+0100 and following, in order (a space is U+0120).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moelink::engine {

/// The character of a byte, as UTF-8.
[[nodiscard]] const std::string& character_of_byte(std::uint8_t byte);

/// The bytes that a vocabulary's token stands for; none if it has a character outside of the alphabet, as the contents
/// of added tokens may.
[[nodiscard]] std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace moelink::engine

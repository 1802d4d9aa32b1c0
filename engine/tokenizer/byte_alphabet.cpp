#include "engine/tokenizer/byte_alphabet.hpp"

#include <array>

#include "engine/tokenizer/utf8.hpp"

namespace moelink::engine {
namespace {

constexpr char32_t kFirstShifted = 0x100;
constexpr std::size_t kNumShifted = 68;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<std::uint8_t, kNumShifted> shifted{};  ///< the byte of U+0100 + i

  Alphabet() {
    std::size_t num_shifted = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
      char32_t character = byte;
      if (!stands_for_itself(byte)) {
        character = kFirstShifted + static_cast<char32_t>(num_shifted);
        shifted.at(num_shifted++) = static_cast<std::uint8_t>(byte);
      }
      append_utf8(characters[byte], character);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

const std::string& character_of_byte(std::uint8_t byte) { return alphabet().characters[byte]; }

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const Utf8Step step = first_character(token);
    const char32_t c = step.character;
    if (step.valid && c < 0x100 && stands_for_itself(c)) {
      bytes += static_cast<char>(c);
    } else if (step.valid && c >= kFirstShifted && c < kFirstShifted + kNumShifted) {
      bytes += static_cast<char>(alphabet().shifted[c - kFirstShifted]);
    } else {
      return {};
    }
    token.remove_prefix(step.num_bytes);
  }
  return bytes;
}

}  // namespace moelink::engine

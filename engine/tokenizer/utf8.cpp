#include "engine/tokenizer/utf8.hpp"

namespace moelink::engine {
namespace {

/// By a character's first byte: its length, and the range of its second byte (the others are 80 to BF).
struct Lead {
  std::size_t length = 0;  ///< 0: no character starts so
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
};

constexpr Lead lead_of(std::uint8_t byte) noexcept {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Step first_character(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.length == 0) {
    return {.num_bytes = 1};
  }
  if (lead.length == 1) {
    return {.num_bytes = 1, .character = byte(0), .valid = true};
  }
  char32_t character = byte(0) & (0xFFU >> (lead.length + 1));
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) {
      return {.num_bytes = i, .incomplete = true};
    }
    const std::uint8_t low = i == 1 ? lead.low : 0x80;
    const std::uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) {
      return {.num_bytes = i};
    }
    character = (character << 6) | (byte(i) & 0x3FU);
  }
  return {.num_bytes = lead.length, .character = character, .valid = true};
}

std::size_t valid_prefix(std::string_view text) noexcept {
  std::size_t position = 0;
  while (position < text.size()) {
    const Utf8Step step = first_character(text.substr(position));
    if (!step.valid) {
      break;
    }
    position += step.num_bytes;
  }
  return position;
}

void append_utf8(std::string& out, char32_t character) {
  const auto tail = [&](unsigned shift) { out += static_cast<char>(0x80U | ((character >> shift) & 0x3FU)); };
  if (character < 0x80) {
    out += static_cast<char>(character);
  } else if (character < 0x800) {
    out += static_cast<char>(0xC0U | (character >> 6));
    tail(0);
  } else if (character < 0x10000) {
    out += static_cast<char>(0xE0U | (character >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0U | (character >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace moelink::engine

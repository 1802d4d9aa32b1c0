// Tokens that are found in a text as they are, before anything splits it: "<|im_end|>".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/json.hpp"
#include "engine/tokenizer/bpe.hpp"

namespace moelink::engine {

struct AddedToken {
  Token id = 0;
  std::string content;
  bool special = false;     ///< control, not text: left out when text is asked for
  bool normalised = false;  ///< looked for in the normalised text instead of the text as it came
  bool strip_left = false;  ///< takes the white space in front of it along
  bool strip_right = false;
};

/// The `added_tokens` of a tokenizer.json. Throws invalid_argument for bad entries, ErrorCode::unsupported for
/// single_word.
[[nodiscard]] std::vector<AddedToken> read_added_tokens(const JsonObject& root);

/// Finds the tokens of one kind (normalised or not) in a text: leftmost first, the longest where several begin.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalised);

  /// Calls text(part) for what lies between tokens, never empty, and token(id), in order.
  void split(std::string_view source, const std::function<void(std::string_view)>& text,
             const std::function<void(Token)>& token) const;

 private:
  [[nodiscard]] const AddedToken* at(std::string_view source, std::size_t position) const;

  std::vector<AddedToken> tokens_;  ///< by first byte, then longest first
};

}  // namespace moelink::engine

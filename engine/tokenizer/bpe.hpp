// Byte-pair encoding: the symbols of a word are joined, pair by pair, in the order in which the merges were learned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/files/json.hpp"

namespace moelink::engine {

using Token = std::int32_t;

/// A vocabulary over the byte alphabet, and its merges. Immutable; several threads may use one at a time.
class Bpe {
 public:
  /// Reads the `model` object of a tokenizer.json. Throws invalid_argument for what is no byte-level BPE: ids that are
  /// negative or stand for two tokens, bytes without a token, merges of tokens that do not exist; ErrorCode::unsupported
  /// for other models and options.
  explicit Bpe(const JsonObject& model);

  /// Appends the tokens of one word of a text, given as its bytes. O(n log n) for n bytes.
  void encode(std::string_view word, std::vector<Token>& out) const;

  [[nodiscard]] const std::unordered_map<std::string, Token>& vocabulary() const noexcept { return vocabulary_; }

 private:
  struct Merge {
    std::int32_t rank = 0;  ///< lower is joined first
    Token joined = 0;
  };
  class Word;

  void read_vocabulary(const JsonObject& model);
  void read_merges(const JsonObject& model);
  [[nodiscard]] const Merge* find_merge(Token left, Token right) const;

  std::unordered_map<std::string, Token> vocabulary_;
  std::unordered_map<std::string, Token> whole_words_;  ///< by bytes; filled only if they are looked up before merging
  std::unordered_map<std::uint64_t, Merge> merges_;     ///< by (left, right)
  std::vector<Token> token_of_byte_;
};

}  // namespace moelink::engine

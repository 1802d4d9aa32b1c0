// From text to tokens and back, as a model's tokenizer.json says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/tokenizer/added_tokens.hpp"
#include "engine/tokenizer/bpe.hpp"
#include "engine/tokenizer/normalizer.hpp"
#include "engine/tokenizer/pre_tokenizer.hpp"

namespace moelink::engine {

/// A byte-level BPE tokenizer. Immutable; several threads may use one at a time.
class Tokenizer {
 public:
  /// Reads a tokenizer.json. Throws invalid_argument, naming file and key, for a file that contradicts itself,
  /// ErrorCode::unsupported for kinds of tokenizers that are not implemented.
  explicit Tokenizer(const std::filesystem::path& path);

  /// The tokens of a text, with those that the model wants around it (`post_processor`). Throws invalid_argument, naming
  /// the byte, if `source` is not UTF-8.
  [[nodiscard]] std::vector<Token> encode(std::string_view source) const;

  /// The text of tokens. Bytes that are no UTF-8 become U+FFFD; tokens that do not exist (a model's vocabulary may be
  /// padded) are nothing; special tokens are left out unless asked for.
  [[nodiscard]] std::string decode(std::span<const Token> tokens, bool with_special = false) const;

  /// The bytes that a token stands for; empty for tokens that do not exist.
  [[nodiscard]] std::string_view bytes_of(Token token) const noexcept;
  [[nodiscard]] bool is_special(Token token) const noexcept;
  /// The token with exactly this content, as the file spells it ("<|im_end|>").
  [[nodiscard]] std::optional<Token> find(const std::string& content) const;
  /// One more than the largest token.
  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(entries_.size()); }

 private:
  struct Entry {
    std::string bytes;
    bool special = false;
  };

  explicit Tokenizer(const JsonObject& root);
  void fill_entries(const std::vector<AddedToken>& added);
  void read_post_processor(const JsonObject& root);
  void read_template(const JsonObject& processor);
  void encode_piece(std::string_view piece, std::vector<Token>& out) const;

  Bpe bpe_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokenFinder as_they_come_;
  AddedTokenFinder in_normalised_;
  std::unordered_map<std::string, Token> added_;
  std::vector<Entry> entries_;  ///< by token
  std::vector<Token> prefix_;   ///< of each text
  std::vector<Token> suffix_;
};

/// The text of a growing sequence of tokens, handed out as soon as it cannot change: the parts, and what finish() gives,
/// are together what decode() gives. The tokenizer must live as long.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool with_special = false)
      : tokenizer_(&tokenizer), with_special_(with_special) {}

  /// The text that is certain now. A character whose bytes are not all there is held back.
  [[nodiscard]] std::string push(Token token);
  /// What was held back, and cannot become a character any more.
  [[nodiscard]] std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool with_special_;
  std::string held_;  ///< at most three bytes: the start of a character
};

}  // namespace moelink::engine

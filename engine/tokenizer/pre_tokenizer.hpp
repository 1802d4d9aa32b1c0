// Splitting a text into words, inside which byte pairs are merged.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/json.hpp"
#include "engine/tokenizer/regex.hpp"

namespace moelink::engine {

/// The `pre_tokenizer` of a tokenizer.json: Split by a pattern, ByteLevel, or a sequence of these. Immutable.
class PreTokenizer {
 public:
  /// Throws ErrorCode::unsupported for kinds and options that are not implemented, invalid_argument for patterns that
  /// cannot be compiled and for a file without ByteLevel, whose tokens would not be over bytes.
  PreTokenizer(const Json* value, const std::string& origin);

  /// Calls word(part) for the words of a text without special tokens, in order. Valid UTF-8.
  void operator()(std::string_view source, const std::function<void(std::string_view)>& word) const;

 private:
  void add(const Json& value, const std::string& origin);
  void split_from(std::size_t step, std::string_view source, const std::function<void(std::string_view)>& word) const;

  std::vector<Regex> splits_;
  bool prefix_space_ = false;
  bool byte_level_ = false;
};

}  // namespace moelink::engine

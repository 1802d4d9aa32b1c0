// Regular expressions with Unicode classes, as tokenizer.json writes them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace moelink::engine {

/// A compiled pattern. Immutable; several threads may use one at a time.
///
/// tokenizer.json's patterns are in the syntax of Oniguruma. The part of it that byte-level tokenizers use (\p{L}, \p{N},
/// \s, \S, (?i:...), look-ahead, classes, possessive and lazy repeats) is PCRE2's, except that \s means Unicode's
/// White_Space exactly; that is translated.
class Regex {
 public:
  /// `origin` names the pattern's file in errors. Throws invalid_argument for a pattern that cannot be compiled.
  Regex(const std::string& pattern, const std::string& origin);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Calls piece(part) for each match in `subject`, which must be valid UTF-8, and for each part between matches; in order,
  /// empty ones left out: the parts together are the text. Throws ErrorCode::capacity if matching takes too many steps.
  void split(std::string_view subject, const std::function<void(std::string_view)>& piece) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink::engine

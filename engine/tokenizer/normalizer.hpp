// Unicode normalisation of a text before it is split.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/json.hpp"

namespace moelink::engine {

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

/// The `normalizer` of a tokenizer.json: null, a normal form, or a sequence of them.
class Normalizer {
 public:
  Normalizer() = default;
  /// `value` may be null. Throws ErrorCode::unsupported for other kinds.
  Normalizer(const Json* value, const std::string& origin);

  /// `source` must be valid UTF-8.
  [[nodiscard]] std::string operator()(std::string_view source) const;

 private:
  void add(const Json& value, const std::string& origin);

  std::vector<NormalForm> forms_;
};

}  // namespace moelink::engine

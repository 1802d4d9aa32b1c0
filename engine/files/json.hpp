// JSON documents whose errors say which file, which key, and what was expected there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moelink::engine {

using Json = nlohmann::json;

/// Parses `source`; `origin` names it in errors. Throws invalid_argument for what is not JSON, for a key that an object
/// has twice (which counts would be a guess), and beyond 64 levels: Json's copies and dumps recurse on the stack.
[[nodiscard]] Json parse_json(std::string_view source, const std::string& origin);

/// Reads and parses a file. Throws ErrorCode::system if it cannot be read, else as parse_json.
[[nodiscard]] Json read_json(const std::filesystem::path& path);

/// An object of a document, and what to call it in errors ("model/config.json" or "tokenizer.json: added_tokens[3]").
/// Views; the document must live as long.
class JsonObject {
 public:
  /// Throws invalid_argument if `value` is not an object.
  JsonObject(const Json& value, std::string origin);

  [[nodiscard]] const std::string& origin() const noexcept { return origin_; }

  /// Null if the key is missing or its value is JSON's null: files use both to say "not set".
  [[nodiscard]] const Json* find(const std::string& key) const;

  /// The value of a key. Throws invalid_argument, naming file and key, if it has another type or range.
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& key) const;
  [[nodiscard]] std::optional<double> number(const std::string& key) const;
  [[nodiscard]] std::optional<bool> boolean(const std::string& key) const;
  [[nodiscard]] std::optional<std::string> string(const std::string& key) const;
  [[nodiscard]] std::optional<JsonObject> object(const std::string& key) const;
  /// The elements of an array; none if the key is missing.
  [[nodiscard]] const std::vector<Json>& array(const std::string& key) const;

  /// Throws invalid_argument: "<origin>: <key> <complaint>".
  [[noreturn]] void refuse(const std::string& key, const std::string& complaint) const;
  /// Throws invalid_argument that names the key, if there is no value.
  template <class T>
  [[nodiscard]] T required(std::optional<T> value, const std::string& key) const {
    if (!value) {
      refuse(key, "is missing");
    }
    return *std::move(value);
  }

 private:
  const Json* value_;
  std::string origin_;
};

}  // namespace moelink::engine

#include "engine/tokenizer/pre_tokenizer.hpp"

#include <cctype>
#include <nlohmann/json.hpp>

#include "engine/base/text.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

// What ByteLevel splits by when it is told to: contractions, then words, numbers and the rest with the space in front.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void not_implemented(const JsonObject& entry, const std::string& what) {
  throw Error(ErrorCode::unsupported, text(entry.origin(), ": ", what, " is not implemented"));
}

std::string pattern_of(const JsonObject& split) {
  if (const auto behavior = split.string("behavior"); behavior != "Isolated") {
    not_implemented(split, text("behavior \"", behavior.value_or("null"), "\" of a Split (only \"Isolated\" is)"));
  }
  // An inverted Split isolates what lies between matches, which gives the same parts.
  const JsonObject pattern = split.required(split.object("pattern"), "pattern");
  if (const auto literal = pattern.string("String")) {
    std::string escaped;
    for (const char c : *literal) {
      const bool special = static_cast<unsigned char>(c) < 0x80 && std::isalnum(static_cast<unsigned char>(c)) == 0;
      escaped.append(special ? "\\" : "") += c;
    }
    return escaped;
  }
  return pattern.required(pattern.string("Regex"), "Regex");
}

}  // namespace

PreTokenizer::PreTokenizer(const Json* value, const std::string& origin) {
  if (value != nullptr) {
    add(*value, text(origin, ": pre_tokenizer"));
  }
  if (!byte_level_) {
    throw Error(ErrorCode::unsupported,
                text(origin, ": pre_tokenizer has no ByteLevel; only byte-level tokenizers are implemented"));
  }
}

void PreTokenizer::add(const Json& value, const std::string& origin) {
  const JsonObject entry(value, origin);
  const std::string type = entry.required(entry.string("type"), "type");
  if (type == "Sequence") {
    for (const Json& part : entry.array("pretokenizers")) {
      add(part, origin);
    }
  } else if (byte_level_) {
    not_implemented(entry, text("type \"", type, "\" behind a ByteLevel"));
  } else if (type == "Split") {
    splits_.emplace_back(pattern_of(entry), origin);
  } else if (type == "ByteLevel") {
    byte_level_ = true;
    prefix_space_ = entry.boolean("add_prefix_space").value_or(true);
    if (prefix_space_ && !splits_.empty()) {
      not_implemented(entry, "add_prefix_space behind a Split");
    }
    if (entry.boolean("use_regex").value_or(true)) {
      splits_.emplace_back(kByteLevelPattern, origin);
    }
  } else {
    not_implemented(entry, text("type \"", type, '"'));
  }
}

void PreTokenizer::split_from(std::size_t step, std::string_view source,
                              const std::function<void(std::string_view)>& word) const {
  if (step == splits_.size()) {
    word(source);
    return;
  }
  splits_[step].split(source, [&](std::string_view part) { split_from(step + 1, part, word); });
}

void PreTokenizer::operator()(std::string_view source, const std::function<void(std::string_view)>& word) const {
  if (source.empty()) {
    return;
  }
  if (prefix_space_ && source.front() != ' ') {
    split_from(0, ' ' + std::string(source), word);
  } else {
    split_from(0, source, word);
  }
}

}  // namespace moelink::engine

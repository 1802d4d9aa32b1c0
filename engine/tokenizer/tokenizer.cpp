#include "engine/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/text.hpp"
#include "engine/tokenizer/byte_alphabet.hpp"
#include "engine/tokenizer/utf8.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

// Ids far beyond any vocabulary: a table up to them would be memory that a wrong file asks for.
constexpr Token kMaxToken = (1 << 24) - 1;

void check_decoder(const JsonObject& root) {
  const auto decoder = root.object("decoder");
  if (!decoder || decoder->string("type") != "ByteLevel") {
    throw Error(ErrorCode::unsupported,
                text(root.origin(), ": decoder is not ByteLevel, the only one that is implemented"));
  }
}

JsonObject model_of(const JsonObject& root) { return root.required(root.object("model"), "model"); }

/// Moves whole characters from the front of `bytes` to `out`, with U+FFFD for what is none; the start of a character
/// that may go on stays.
void take_characters(std::string& bytes, std::string& out) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const Utf8Step step = first_character(rest);
    if (step.incomplete) {
      break;
    }
    out += step.valid ? rest.substr(0, step.num_bytes) : kReplacement;
    rest.remove_prefix(step.num_bytes);
  }
  bytes.erase(0, bytes.size() - rest.size());
}

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path& path) : Tokenizer(JsonObject(read_json(path), path.string())) {}

Tokenizer::Tokenizer(const JsonObject& root)
    : bpe_(model_of(root)),
      normalizer_(root.find("normalizer"), root.origin()),
      pre_tokenizer_(root.find("pre_tokenizer"), root.origin()) {
  check_decoder(root);
  const std::vector<AddedToken> added = read_added_tokens(root);
  as_they_come_ = AddedTokenFinder(added, false);
  in_normalised_ = AddedTokenFinder(added, true);
  for (const AddedToken& token : added) {
    const auto known = bpe_.vocabulary().find(token.content);
    if (known != bpe_.vocabulary().end() && known->second != token.id) {
      root.refuse("added_tokens",
                  text("give the id ", token.id, " to \"", token.content, "\", the vocabulary ", known->second));
    }
    added_.emplace(token.content, token.id);
  }
  fill_entries(added);
  read_post_processor(root);
}

void Tokenizer::fill_entries(const std::vector<AddedToken>& added) {
  const auto entry_of = [&](Token token) -> Entry& {
    if (token > kMaxToken) {
      throw Error(ErrorCode::invalid_argument,
                  text("the tokenizer has token ", token, "; expected at most ", kMaxToken));
    }
    entries_.resize(std::max(entries_.size(), static_cast<std::size_t>(token) + 1));
    return entries_[static_cast<std::size_t>(token)];
  };
  for (const auto& [token, id] : bpe_.vocabulary()) {
    entry_of(id).bytes = bytes_of_token(token).value_or(token);
  }
  for (const AddedToken& token : added) {
    entry_of(token.id) = {.bytes = bytes_of_token(token.content).value_or(token.content), .special = token.special};
  }
}

void Tokenizer::read_post_processor(const JsonObject& root) {
  const auto processor = root.object("post_processor");
  if (!processor) {
    return;
  }
  std::vector<JsonObject> parts = {*processor};
  if (processor->string("type") == "Sequence") {
    parts.clear();
    for (const Json& part : processor->array("processors")) {
      parts.emplace_back(part, processor->origin());
    }
  }
  for (const JsonObject& part : parts) {
    const std::string type = part.required(part.string("type"), "type");
    if (type == "TemplateProcessing") {
      read_template(part);
    } else if (type != "ByteLevel") {  // ByteLevel only moves offsets, which nobody asks for here
      throw Error(ErrorCode::unsupported, text(part.origin(), " of type \"", type, "\" is not implemented"));
    }
  }
}

void Tokenizer::read_template(const JsonObject& processor) {
  bool behind = false;
  for (const Json& value : processor.array("single")) {
    const JsonObject step(value, processor.origin() + ": single");
    if (const auto special = step.object("SpecialToken")) {
      const std::string content = special->required(special->string("id"), "id");
      const auto token = find(content);
      if (!token) {
        special->refuse("id", text("is \"", content, "\", which is no token"));
      }
      (behind ? suffix_ : prefix_).push_back(*token);
    } else {
      behind = true;
    }
  }
}

std::vector<Token> Tokenizer::encode(std::string_view source) const {
  if (const std::size_t valid = valid_prefix(source); valid != source.size()) {
    throw Error(ErrorCode::invalid_argument,
                text("the text is not UTF-8: byte ", valid, " of ", source.size(), " is not part of a character"));
  }
  std::vector<Token> tokens = prefix_;
  const auto add = [&](Token token) { tokens.push_back(token); };
  as_they_come_.split(
      source,
      [&](std::string_view part) {
        in_normalised_.split(
            normalizer_(part), [&](std::string_view piece) { encode_piece(piece, tokens); }, add);
      },
      add);
  tokens.insert(tokens.end(), suffix_.begin(), suffix_.end());
  return tokens;
}

void Tokenizer::encode_piece(std::string_view piece, std::vector<Token>& out) const {
  pre_tokenizer_(piece, [&](std::string_view word) { bpe_.encode(word, out); });
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool with_special) const {
  StreamDecoder decoder(*this, with_special);
  std::string out;
  for (const Token token : tokens) {
    out += decoder.push(token);
  }
  return out + decoder.finish();
}

std::string_view Tokenizer::bytes_of(Token token) const noexcept {
  return token >= 0 && token < size() ? std::string_view(entries_[static_cast<std::size_t>(token)].bytes) : "";
}

bool Tokenizer::is_special(Token token) const noexcept {
  return token >= 0 && token < size() && entries_[static_cast<std::size_t>(token)].special;
}

std::optional<Token> Tokenizer::find(const std::string& content) const {
  for (const auto* map : {&added_, &bpe_.vocabulary()}) {
    if (const auto found = map->find(content); found != map->end()) {
      return found->second;
    }
  }
  return {};
}

std::string StreamDecoder::push(Token token) {
  std::string out;
  if (with_special_ || !tokenizer_->is_special(token)) {
    held_ += tokenizer_->bytes_of(token);
    take_characters(held_, out);
  }
  return out;
}

std::string StreamDecoder::finish() {
  const bool cut_short = !held_.empty();
  held_.clear();
  return std::string(cut_short ? kReplacement : "");
}

}  // namespace moelink::engine

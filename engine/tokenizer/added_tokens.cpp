#include "engine/tokenizer/added_tokens.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/text.hpp"
#include "engine/tokenizer/utf8.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

/// Unicode's White_Space.
bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::size_t skip_spaces(std::string_view source, std::size_t position) {
  while (position < source.size()) {
    const Utf8Step step = first_character(source.substr(position));
    if (!step.valid || !is_space(step.character)) {
      break;
    }
    position += step.num_bytes;
  }
  return position;
}

/// The end of `source` without the white space there.
std::size_t without_spaces(std::string_view source) {
  std::size_t end = 0;
  for (std::size_t position = 0; position < source.size();) {
    const Utf8Step step = first_character(source.substr(position));
    position += step.num_bytes;
    if (!is_space(step.character)) {
      end = position;
    }
  }
  return end;
}

unsigned char first_byte(const AddedToken& token) { return static_cast<unsigned char>(token.content.front()); }

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonObject& root) {
  std::vector<AddedToken> tokens;
  for (const Json& value : root.array("added_tokens")) {
    const JsonObject entry(value, text(root.origin(), ": added_tokens[", tokens.size(), "]"));
    const std::int64_t id = entry.required(entry.integer("id"), "id");
    AddedToken token{.content = entry.required(entry.string("content"), "content"),
                     .special = entry.boolean("special").value_or(false),
                     .normalised = entry.boolean("normalized").value_or(false),
                     .strip_left = entry.boolean("lstrip").value_or(false),
                     .strip_right = entry.boolean("rstrip").value_or(false)};
    if (id < 0 || id > INT32_MAX) {
      entry.refuse("id", text("is ", id, "; expected 0 to ", INT32_MAX));
    }
    if (token.content.empty()) {
      entry.refuse("content", "is empty");
    }
    if (entry.boolean("single_word").value_or(false)) {
      throw Error(ErrorCode::unsupported, text(entry.origin(), ": single_word is not implemented"));
    }
    token.id = static_cast<Token>(id);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalised) {
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(tokens_),
               [&](const AddedToken& token) { return token.normalised == normalised; });
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return first_byte(a) != first_byte(b) ? first_byte(a) < first_byte(b) : a.content.size() > b.content.size();
  });
}

const AddedToken* AddedTokenFinder::at(std::string_view source, std::size_t position) const {
  const auto byte = static_cast<unsigned char>(source[position]);
  auto candidate = std::lower_bound(tokens_.begin(), tokens_.end(), byte,
                                    [](const AddedToken& token, unsigned char b) { return first_byte(token) < b; });
  for (; candidate != tokens_.end() && first_byte(*candidate) == byte; ++candidate) {
    if (source.substr(position).starts_with(candidate->content)) {
      return &*candidate;
    }
  }
  return nullptr;
}

void AddedTokenFinder::split(std::string_view source, const std::function<void(std::string_view)>& text,
                             const std::function<void(Token)>& token) const {
  std::size_t done = 0;
  for (std::size_t position = 0; position < source.size();) {
    const AddedToken* found = at(source, position);
    if (found == nullptr) {
      ++position;
      continue;
    }
    std::string_view before = source.substr(done, position - done);
    if (found->strip_left) {
      before = before.substr(0, without_spaces(before));
    }
    if (!before.empty()) {
      text(before);
    }
    token(found->id);
    position += found->content.size();
    if (found->strip_right) {
      position = skip_spaces(source, position);
    }
    done = position;
  }
  if (done < source.size()) {
    text(source.substr(done));
  }
}

}  // namespace moelink::engine

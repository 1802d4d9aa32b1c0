#include "engine/tokenizer/bpe.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <tuple>
#include <utility>

#include "engine/base/text.hpp"
#include "engine/tokenizer/byte_alphabet.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

std::uint64_t pair_key(Token left, Token right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

[[noreturn]] void not_implemented(const JsonObject& model, const std::string& what) {
  throw Error(ErrorCode::unsupported, text(model.origin(), ": ", what, "; only byte-level BPE is implemented"));
}

void refuse_what_is_not_implemented(const JsonObject& model) {
  if (const auto type = model.string("type"); type && *type != "BPE") {
    not_implemented(model, text("type is \"", *type, "\""));
  }
  if (model.boolean("byte_fallback").value_or(false)) {
    not_implemented(model, "byte_fallback is set");
  }
  if (model.number("dropout").value_or(0) != 0) {
    not_implemented(model, "dropout is set");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string(key).value_or("").empty()) {
      not_implemented(model, text(key, " is set"));
    }
  }
}

/// "a b" or ["a", "b"].
std::pair<std::string, std::string> sides_of(const JsonObject& model, const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  const std::string joined = merge.is_string() ? merge.get<std::string>() : "";
  const std::size_t space = joined.find(' ');
  if (space == std::string::npos || joined.find(' ', space + 1) != std::string::npos) {
    model.refuse("merges", text("contains ", merge.dump(), "; expected \"left right\" or [\"left\", \"right\"]"));
  }
  return {joined.substr(0, space), joined.substr(space + 1)};
}

}  // namespace

Bpe::Bpe(const JsonObject& model) {
  refuse_what_is_not_implemented(model);
  read_vocabulary(model);
  read_merges(model);
}

void Bpe::read_vocabulary(const JsonObject& model) {
  (void)model.required(model.object("vocab"), "vocab");
  const bool ignore_merges = model.boolean("ignore_merges").value_or(false);
  std::unordered_map<Token, const std::string*> token_of_id;
  for (const auto& [token, id] : model.find("vocab")->get_ref<const Json::object_t&>()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) {
      model.refuse("vocab", text("gives the id ", id.dump(), " to \"", token, "\"; expected 0 to ", INT32_MAX));
    }
    const auto number = id.get<Token>();
    if (const auto [other, fresh] = token_of_id.emplace(number, &token); !fresh) {
      model.refuse("vocab", text("gives the id ", number, " to \"", *other->second, "\" and to \"", token, "\""));
    }
    vocabulary_.emplace(token, number);
    if (ignore_merges) {
      if (auto bytes = bytes_of_token(token)) {
        whole_words_.emplace(*std::move(bytes), number);
      }
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto found = vocabulary_.find(character_of_byte(static_cast<std::uint8_t>(byte)));
    if (found == vocabulary_.end()) {
      model.refuse("vocab",
                   text("has no token for byte ", byte, " (\"", character_of_byte(static_cast<std::uint8_t>(byte)),
                        "\"); a byte-level vocabulary has all 256"));
    }
    token_of_byte_.push_back(found->second);
  }
}

void Bpe::read_merges(const JsonObject& model) {
  const Json::array_t& merges = model.array("merges");
  const auto token_of = [&](const std::string& token, const Json& merge) {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end()) {
      model.refuse("merges", text("contains ", merge.dump(), ", but \"", token, "\" is not in the vocabulary"));
    }
    return found->second;
  };
  std::int32_t rank = 0;
  for (const Json& merge : merges) {
    const auto [left, right] = sides_of(model, merge);
    merges_.emplace(pair_key(token_of(left, merge), token_of(right, merge)),
                    Merge{.rank = rank++, .joined = token_of(left + right, merge)});
  }
}

const Bpe::Merge* Bpe::find_merge(Token left, Token right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

/// The symbols of a word while they are joined: a doubly linked list, and a queue of the pairs that could be next.
class Bpe::Word {
 public:
  Word(const Bpe& bpe, std::string_view bytes) : bpe_(bpe) {
    const auto size = static_cast<int>(bytes.size());
    symbols_.reserve(bytes.size());
    for (int i = 0; i < size; ++i) {
      const auto byte = static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(i)]);
      symbols_.push_back({.token = bpe.token_of_byte_[byte], .previous = i - 1, .next = i + 1 < size ? i + 1 : -1});
    }
    for (int i = 0; i + 1 < size; ++i) {
      offer(i);
    }
  }

  void join_all() {
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      Symbol& left = at(best.left);
      // A symbol that was joined since then has another token, or none.
      if (left.token != best.left_token || left.next < 0 || at(left.next).token != best.right_token) {
        continue;
      }
      join(best.left, best.joined);
    }
  }

  void append_to(std::vector<Token>& out) const {
    for (int i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
      out.push_back(symbols_[static_cast<std::size_t>(i)].token);
    }
  }

 private:
  struct Symbol {
    Token token = -1;
    int previous = -1;
    int next = -1;
  };
  struct Candidate {
    std::int32_t rank = 0;
    int left = 0;
    Token left_token = 0;
    Token right_token = 0;
    Token joined = 0;
    /// The lowest rank first, and of one rank the leftmost.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return std::tie(a.rank, a.left) > std::tie(b.rank, b.left);
    }
  };

  [[nodiscard]] Symbol& at(int index) { return symbols_[static_cast<std::size_t>(index)]; }

  void offer(int left) {
    const Token left_token = at(left).token;
    const Token right_token = at(at(left).next).token;
    if (const Merge* merge = bpe_.find_merge(left_token, right_token)) {
      candidates_.push({merge->rank, left, left_token, right_token, merge->joined});
    }
  }

  void join(int index, Token joined) {
    Symbol& left = at(index);
    Symbol& right = at(left.next);
    left.token = joined;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0) {
      at(left.next).previous = index;
      offer(index);
    }
    if (left.previous >= 0) {
      offer(left.previous);
    }
  }

  const Bpe& bpe_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> candidates_;
};

void Bpe::encode(std::string_view word, std::vector<Token>& out) const {
  if (!whole_words_.empty()) {
    if (const auto whole = whole_words_.find(std::string(word)); whole != whole_words_.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  Word symbols(*this, word);
  symbols.join_all();
  symbols.append_to(out);
}

}  // namespace moelink::engine

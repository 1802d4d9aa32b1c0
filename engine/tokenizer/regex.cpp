#include "engine/tokenizer/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "engine/base/text.hpp"
#include "engine/tokenizer/utf8.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

// Unicode's White_Space. PCRE2's own \s has U+180E in addition.
constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// \s and, outside of classes, \S written out.
std::string translated(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\' && next == 's') {
      out.append(in_class ? "" : "[").append(kSpaces).append(in_class ? "" : "]");
    } else if (c == '\\' && next == 'S' && !in_class) {
      out.append("[^").append(kSpaces).append("]");
    } else if (c == '\\') {
      out.append({c, next});
    } else {
      in_class = in_class ? c != ']' : c == '[';
      out += c;
      continue;
    }
    ++i;
  }
  return out;
}

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const noexcept { pcre2_code_free(code); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* data) const noexcept { pcre2_match_data_free(data); }
};

}  // namespace

struct Regex::Impl {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
};

Regex::Regex(const std::string& pattern, const std::string& origin) : impl_(std::make_unique<Impl>()) {
  const std::string source = translated(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), PCRE2_UTF | PCRE2_UCP,
                                  &error, &offset, nullptr));
  if (impl_->code == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                text(origin, ": the pattern \"", pattern, "\" cannot be used: ", message_of(error)));
  }
  // Only a faster way to the same matches; where the machine forbids it (no executable memory) matching interprets.
  pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::split(std::string_view subject, const std::function<void(std::string_view)>& piece) const {
  const std::unique_ptr<pcre2_match_data, MatchDeleter> match(
      pcre2_match_data_create_from_pattern(impl_->code.get(), nullptr));
  std::size_t done = 0;   // all before this has been handed out
  std::size_t start = 0;  // where the next match may begin
  const auto hand_out = [&](std::size_t end) {
    if (end > done) {
      piece(subject.substr(done, end - done));
      done = end;
    }
  };
  while (start < subject.size()) {
    const int found = pcre2_match(impl_->code.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(),
                                  start, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) {
      break;
    }
    if (found < 0) {
      throw Error(ErrorCode::capacity, text("splitting ", subject.size(), " bytes of text into words failed at byte ",
                                            start, ": ", message_of(found)));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    hand_out(bounds[0]);
    hand_out(bounds[1]);
    // An empty match is none, but the next one must begin a character later.
    start = bounds[1] > bounds[0] ? bounds[1] : bounds[1] + 1;
    while (start < subject.size() && (static_cast<unsigned char>(subject[start]) & 0xC0U) == 0x80U) {
      ++start;
    }
  }
  hand_out(subject.size());
}

}  // namespace moelink::engine

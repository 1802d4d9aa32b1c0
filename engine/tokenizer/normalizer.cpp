#include "engine/tokenizer/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/base/text.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

constexpr std::pair<std::string_view, NormalForm> kForms[] = {
    {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};

utf8proc_option_t options_of(NormalForm form) {
  const bool composed = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (compatible ? UTF8PROC_COMPAT : 0));
}

std::string normalised(std::string_view source, NormalForm form) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(source.data()),
                                             static_cast<utf8proc_ssize_t>(source.size()), &result, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(result, &std::free);
  if (size < 0) {
    throw Error(ErrorCode::invalid_argument,
                text("text of ", source.size(), " bytes cannot be normalised: ", utf8proc_errmsg(size)));
  }
  return {reinterpret_cast<const char*>(result), static_cast<std::size_t>(size)};
}

}  // namespace

Normalizer::Normalizer(const Json* value, const std::string& origin) {
  if (value != nullptr) {
    add(*value, text(origin, ": normalizer"));
  }
}

void Normalizer::add(const Json& value, const std::string& origin) {
  const JsonObject entry(value, origin);
  const std::string type = entry.required(entry.string("type"), "type");
  if (type == "Sequence") {
    for (const Json& part : entry.array("normalizers")) {
      add(part, origin);
    }
    return;
  }
  const auto* known =
      std::find_if(std::begin(kForms), std::end(kForms), [&](const auto& f) { return f.first == type; });
  if (known == std::end(kForms)) {
    throw Error(ErrorCode::unsupported, text(origin, " of type \"", type,
                                             "\" is not implemented; known are NFC, NFD, NFKC, "
                                             "NFKD and Sequence"));
  }
  forms_.push_back(known->second);
}

std::string Normalizer::operator()(std::string_view source) const {
  std::string result(source);
  // Plain ASCII is every form of itself.
  if (std::any_of(result.begin(), result.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) {
    for (const NormalForm form : forms_) {
      result = normalised(result, form);
    }
  }
  return result;
}

}  // namespace moelink::engine

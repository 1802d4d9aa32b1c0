#include "engine/serve/completion_request.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/base/text.hpp"
#include "engine/files/json.hpp"
#include "engine/serve/api_error.hpp"

namespace moelink::engine {
namespace {

constexpr std::int64_t kDefaultMaxTokens = 16;
constexpr std::size_t kMostStops = 4;

[[noreturn]] void refuse(const std::string& field, const std::string& complaint) {
  throw ApiError(400, text(field, ' ', complaint), {.param = field});
}

/// Fields of the body; null counts as not there.
class Fields {
 public:
  explicit Fields(const Json& body) : body_(body) {
    if (!body.is_object()) {
      throw ApiError(400, text("the body is a JSON ", body.type_name(), "; expected an object"));
    }
  }

  [[nodiscard]] const Json* find(const std::string& field) const {
    const auto found = body_.find(field);
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }
  [[nodiscard]] std::int64_t integer(const std::string& field, std::int64_t otherwise, std::int64_t least) const {
    const Json* value = find(field);
    if (value == nullptr) {
      return otherwise;
    }
    const bool fits = value->is_number_integer() &&
                      (!value->is_number_unsigned() ||
                       value->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
    if (!fits || value->get<std::int64_t>() < least) {
      refuse(field, text("is ", value->dump(), "; expected an integer of at least ", least));
    }
    return value->get<std::int64_t>();
  }
  [[nodiscard]] double number(const std::string& field, double otherwise) const {
    const Json* value = find(field);
    if (value != nullptr && !value->is_number()) {
      refuse(field, text("is ", value->dump(), "; expected a number"));
    }
    return value == nullptr ? otherwise : value->get<double>();
  }
  [[nodiscard]] bool boolean(const std::string& field) const {
    const Json* value = find(field);
    if (value != nullptr && !value->is_boolean()) {
      refuse(field, text("is ", value->dump(), "; expected true or false"));
    }
    return value != nullptr && value->get<bool>();
  }

  /// Every field must be one of these, or say nothing.
  void refuse_unknown(const auto& known) const {
    for (const auto& [field, value] : body_.items()) {
      if (std::find(known.begin(), known.end(), field) == known.end() && !value.is_null()) {
        refuse(field, "is not known here");
      }
    }
  }

 private:
  const Json& body_;
};

/// Fields of OpenAI's API that are not implemented, with the one value that asks for nothing.
struct Neutral {
  const char* field;
  Json value;
};
const std::vector<Neutral>& not_implemented() {
  static const std::vector<Neutral> all = {{"n", 1},
                                           {"best_of", 1},
                                           {"echo", false},
                                           {"suffix", ""},
                                           {"logit_bias", Json::object()},
                                           {"presence_penalty", 0},
                                           {"frequency_penalty", 0}};
  return all;
}

std::vector<std::string> known_fields() {
  // The last two are for the books of whoever asks.
  std::vector<std::string> known = {"model", "prompt", "max_tokens",     "temperature", "top_p", "top_k",   "seed",
                                    "stop",  "stream", "stream_options", "ignore_eos",  "user",  "metadata"};
  for (const Neutral& neutral : not_implemented()) {
    known.emplace_back(neutral.field);
  }
  return known;
}

std::vector<Token> prompt_of(const Fields& fields, const Tokenizer& tokenizer) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) {
    refuse("prompt", "is missing: give a text, or an array of token ids");
  }
  if (prompt->is_string()) {
    return tokenizer.encode(prompt->get_ref<const std::string&>());
  }
  std::vector<Token> tokens;
  if (!prompt->is_array()) {
    refuse("prompt", text("is a JSON ", prompt->type_name(), "; expected a text, or an array of token ids"));
  }
  for (const Json& token : *prompt) {
    if (!token.is_number_integer() || token < 0 || token > std::numeric_limits<Token>::max()) {
      refuse("prompt", text("has ", token.is_structured() ? token.type_name() : token.dump(),
                            " in its array; expected token ids (several prompts in one request are not implemented)"));
    }
    tokens.push_back(token.get<Token>());
  }
  return tokens;
}

std::vector<std::string> stops_of(const Fields& fields) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) {
    return {};
  }
  const Json::array_t texts = stop->is_array() ? stop->get_ref<const Json::array_t&>() : Json::array_t{*stop};
  std::vector<std::string> stops;
  for (const Json& entry : texts) {
    if (!entry.is_string() || entry.get_ref<const std::string&>().empty()) {
      refuse("stop", "expects a text, or an array of texts, none of them empty");
    }
    stops.push_back(entry.get<std::string>());
  }
  if (stops.size() > kMostStops) {
    refuse("stop", text("has ", stops.size(), " texts; expected at most ", kMostStops));
  }
  return stops;
}

std::uint64_t seed_of(const Fields& fields) {
  if (fields.find("seed") != nullptr) {
    return static_cast<std::uint64_t>(fields.integer("seed", 0, std::numeric_limits<std::int64_t>::min()));
  }
  std::random_device random;
  return (std::uint64_t{random()} << 32U) | random();
}

/// In the words of the API, and naming the field; the engine would refuse the same.
SamplingOptions sampling_of(const Fields& fields) {
  const SamplingOptions options{.temperature = fields.number("temperature", 1),
                                .top_k = std::max<std::int64_t>(fields.integer("top_k", 0, -1), 0),
                                .top_p = fields.number("top_p", 1),
                                .seed = seed_of(fields)};
  const auto check = [](const char* field, const SamplingOptions& only_that) {
    try {
      check_sampling(only_that);
    } catch (const std::exception& error) {
      throw ApiError(400, ApiError::of(error).what(), {.param = field});
    }
  };
  check("temperature", {.temperature = options.temperature});
  check("top_p", {.top_p = options.top_p});
  return options;
}

bool wants_usage(const Fields& fields, bool stream) {
  const Json* options = fields.find("stream_options");
  if (options == nullptr) {
    return false;
  }
  if (!stream || !options->is_object()) {
    refuse("stream_options", stream ? "expects an object" : "is only for \"stream\": true");
  }
  const Fields inner(*options);
  inner.refuse_unknown(std::array<std::string, 1>{"include_usage"});
  return inner.boolean("include_usage");
}

}  // namespace

CompletionRequest parse_completion(std::string_view body, const Tokenizer& tokenizer, const std::string& model_name) {
  const Json document = parse_json(body, "the body");
  const Fields fields(document);
  static const std::vector<std::string> known = known_fields();
  fields.refuse_unknown(known);
  for (const Neutral& neutral : not_implemented()) {
    const Json* value = fields.find(neutral.field);
    if (value != nullptr && *value != neutral.value) {
      refuse(neutral.field,
             text("is ", value->dump(), ", which is not implemented; leave it out, or give ", neutral.value.dump()));
    }
  }
  if (const Json* model = fields.find("model"); model != nullptr && *model != Json(model_name)) {
    throw ApiError(404, text("model ", model->dump(), " does not exist here; this server has \"", model_name, '"'),
                   {.param = "model", .code = "model_not_found"});
  }
  const bool stream = fields.boolean("stream");
  return {.request = {.prompt = prompt_of(fields, tokenizer),
                      .max_tokens = fields.integer("max_tokens", kDefaultMaxTokens, 1),
                      .sampling = sampling_of(fields),
                      .ignore_end_tokens = fields.boolean("ignore_eos")},
          .stops = stops_of(fields),
          .stream = stream,
          .include_usage = wants_usage(fields, stream)};
}

}  // namespace moelink::engine

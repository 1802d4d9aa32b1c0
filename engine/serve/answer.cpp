#include "engine/serve/answer.hpp"

#include <chrono>
#include <nlohmann/json.hpp>

#include "engine/base/text.hpp"
#include "engine/serve/api_error.hpp"

namespace moelink::engine {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string event_of(const std::string& data) { return text("data: ", data, "\n\n"); }

OrderedJson choice_of(const std::string& words, const OrderedJson& finish_reason) {
  return {{"index", 0}, {"text", words}, {"logprobs", nullptr}, {"finish_reason", finish_reason}};
}

OrderedJson usage_of(std::int64_t num_prompt_tokens, const ContinuationEnd& end) {
  return {{"prompt_tokens", num_prompt_tokens},
          {"completion_tokens", end.num_tokens},
          {"total_tokens", num_prompt_tokens + end.num_tokens}};
}

OrderedJson frame_of(const std::string& id, const std::string& model, std::int64_t created, OrderedJson choices) {
  return {{"id", id},
          {"object", "text_completion"},
          {"created", created},
          {"model", model},
          {"choices", std::move(choices)}};
}

}  // namespace

Answer::Answer(std::uint64_t number, std::string model, std::int64_t num_prompt_tokens, bool include_usage)
    : id_(text("cmpl-", number)),
      model_(std::move(model)),
      num_prompt_tokens_(num_prompt_tokens),
      include_usage_(include_usage),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

std::string Answer::whole(const std::string& text, const ContinuationEnd& end) const {
  OrderedJson body = frame_of(id_, model_, created_, OrderedJson::array({choice_of(text, name_of(end.reason))}));
  body["usage"] = usage_of(num_prompt_tokens_, end);
  return body.dump();
}

std::string Answer::event(const std::string& text) const {
  OrderedJson body = frame_of(id_, model_, created_, OrderedJson::array({choice_of(text, nullptr)}));
  if (include_usage_) {
    body["usage"] = nullptr;  // so it is in every event but the last
  }
  return event_of(body.dump());
}

std::string Answer::end_events(const ContinuationEnd& end) const {
  if (!end.is_good()) {
    return event_of(ApiError(500, end.error).body()) + event_of("[DONE]");
  }
  OrderedJson last = frame_of(id_, model_, created_, OrderedJson::array({choice_of("", name_of(end.reason))}));
  std::string usage;
  if (include_usage_) {
    last["usage"] = nullptr;
    OrderedJson body = frame_of(id_, model_, created_, OrderedJson::array());
    body["usage"] = usage_of(num_prompt_tokens_, end);
    usage = event_of(body.dump());
  }
  return event_of(last.dump()) + usage + event_of("[DONE]");
}

}  // namespace moelink::engine

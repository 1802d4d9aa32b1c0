#include "engine/model/config.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/text.hpp"
#include "engine/files/json.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

constexpr std::array<std::pair<std::string_view, Architecture>, 3> kArchitectures = {{
    {"Qwen3MoeForCausalLM", Architecture::qwen3_moe},
    {"OlmoeForCausalLM", Architecture::olmoe},
    {"MixtralForCausalLM", Architecture::mixtral},
}};

// Sizes beyond these are typing errors, and would let products overflow.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;
constexpr std::int64_t kMaxExperts = 16384;
constexpr std::int64_t kMaxTopK = 32;

[[noreturn]] void not_implemented(const JsonObject& config, const std::string& what) {
  throw Error(ErrorCode::unsupported, config.origin() + ": " + what);
}

Architecture architecture_of(const JsonObject& config) {
  const Json::array_t& names = config.array("architectures");
  std::string known;
  for (const auto& [name, architecture] : kArchitectures) {
    if (names.size() == 1 && names[0] == name) {
      return architecture;
    }
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  not_implemented(config, text("architectures is ", Json(names).dump(), "; known are ", known));
}

std::int64_t size_in(const JsonObject& config, const std::string& key, std::optional<std::int64_t> value,
                     std::int64_t largest = kMaxSize) {
  const std::int64_t size = config.required(value, key);
  if (size < 1 || size > largest) {
    config.refuse(key, text("is ", size, "; expected 1 to ", largest));
  }
  return size;
}

std::int64_t size_at(const JsonObject& config, const std::string& key, std::int64_t largest = kMaxSize) {
  return size_in(config, key, config.integer(key), largest);
}

/// The number of experts has two names.
std::int64_t num_experts_of(const JsonObject& config) {
  const auto first = config.integer("num_experts");
  const auto second = config.integer("num_local_experts");
  if (first && second && first != second) {
    config.refuse("num_experts", text("is ", *first, " and num_local_experts ", *second, "; which is meant?"));
  }
  return size_in(config, "num_experts", first ? first : second, kMaxExperts);
}

/// A kind of RoPE, in the old spelling under `type`, which changes nothing or is refused.
void check_rope_type(const JsonObject& config, const JsonObject& settings) {
  const auto type = settings.string("rope_type") ? settings.string("rope_type") : settings.string("type");
  if (type && *type != "default") {
    not_implemented(config, text("rotary embeddings of type \"", *type, "\" are not implemented, only \"default\""));
  }
}

double rope_theta_of(const JsonObject& config) {
  const auto old_theta = config.number("rope_theta");
  std::optional<double> theta;
  if (const auto scaling = config.object("rope_scaling")) {
    check_rope_type(config, *scaling);
  }
  if (const auto parameters = config.object("rope_parameters")) {
    check_rope_type(config, *parameters);
    theta = parameters->number("rope_theta");
  }
  if (theta && old_theta && *theta != *old_theta) {
    config.refuse("rope_theta", text("is ", *old_theta, ", but rope_parameters says ", *theta));
  }
  const double value = config.required(theta ? theta : old_theta, "rope_theta");
  if (!(value > 0) || value > 1e15) {
    config.refuse("rope_theta", text("is ", value, "; expected more than 0"));
  }
  return value;
}

/// Settings that would change what the model computes.
void refuse_what_is_not_implemented(const JsonObject& config, const ModelConfig& model) {
  if (const auto activation = config.string("hidden_act"); activation && *activation != "silu") {
    not_implemented(config, text("hidden_act \"", *activation, "\" is not implemented, only \"silu\""));
  }
  if (config.boolean("attention_bias").value_or(false)) {
    not_implemented(config, "attention_bias is not implemented");
  }
  const bool windowed =
      model.architecture == Architecture::mixtral || config.boolean("use_sliding_window").value_or(false);
  if (const auto window = config.integer("sliding_window"); windowed && window && *window < model.max_positions) {
    not_implemented(config, text("a sliding_window of ", *window, " is not implemented"));
  }
  if (!config.array("mlp_only_layers").empty() || config.integer("decoder_sparse_step").value_or(1) != 1) {
    not_implemented(config, "layers without experts (mlp_only_layers, decoder_sparse_step) are not implemented");
  }
}

void read_attention(const JsonObject& config, ModelConfig& model) {
  model.num_heads = size_at(config, "num_attention_heads");
  model.num_kv_heads = config.integer("num_key_value_heads") ? size_at(config, "num_key_value_heads") : model.num_heads;
  if (model.num_heads % model.num_kv_heads != 0) {
    config.refuse("num_key_value_heads", text("is ", model.num_kv_heads, ", which does not divide the ",
                                              model.num_heads, " of num_attention_heads"));
  }
  if (!config.integer("head_dim") && model.hidden % model.num_heads != 0) {
    config.refuse("head_dim", text("is missing, and hidden_size / num_attention_heads is no integer"));
  }
  model.head_dim = config.integer("head_dim") ? size_at(config, "head_dim") : model.hidden / model.num_heads;
  if (model.head_dim % 2 != 0) {
    config.refuse("head_dim", text("is ", model.head_dim, "; rotary embeddings need an even number"));
  }
  model.rope_theta = rope_theta_of(config);
}

void read_differences(const JsonObject& config, ModelConfig& model) {
  switch (model.architecture) {
    case Architecture::qwen3_moe:
      model.qk_norm = QkNorm::per_head;
      model.normalise_top_k = config.boolean("norm_topk_prob").value_or(false);
      break;
    case Architecture::olmoe:
      model.qk_norm = QkNorm::all_heads;
      model.normalise_top_k = config.boolean("norm_topk_prob").value_or(false);
      if (const auto clip = config.number("clip_qkv")) {
        if (!(*clip > 0)) {
          config.refuse("clip_qkv", text("is ", *clip, "; expected more than 0, or null"));
        }
        model.clip_qkv = static_cast<float>(*clip);
      }
      break;
    case Architecture::mixtral:
      model.qk_norm = QkNorm::none;
      model.normalise_top_k = true;
      break;
  }
}

/// `eos_token_id` is a number, several, or not set.
std::vector<std::int32_t> end_tokens_of(const JsonObject& config, std::int64_t vocab_size) {
  const Json* value = config.find("eos_token_id");
  if (value == nullptr) {
    return {};
  }
  std::vector<std::int32_t> tokens;
  for (const Json& token : value->is_array() ? *value : Json::array({*value})) {
    if (!token.is_number_integer() || token.get<std::int64_t>() < 0 || token.get<std::int64_t>() >= vocab_size) {
      config.refuse("eos_token_id", text("is ", token.dump(), "; expected a token from 0 to ", vocab_size - 1));
    }
    tokens.push_back(token.get<std::int32_t>());
  }
  return tokens;
}

}  // namespace

std::string_view name_of(Architecture architecture) noexcept {
  return kArchitectures[static_cast<std::size_t>(architecture)].first;
}

ModelConfig read_model_config(const std::filesystem::path& folder) {
  const Json parsed = read_json(folder / "config.json");
  const JsonObject config(parsed, (folder / "config.json").string());
  ModelConfig model;
  model.architecture = architecture_of(config);
  model.vocab_size = size_at(config, "vocab_size");
  model.hidden = size_at(config, "hidden_size");
  model.num_layers = size_at(config, "num_hidden_layers");
  model.max_positions = size_at(config, "max_position_embeddings");
  model.num_experts = num_experts_of(config);
  model.top_k = static_cast<int>(size_at(config, "num_experts_per_tok", std::min(model.num_experts, kMaxTopK)));
  model.expert_intermediate =
      size_at(config, model.architecture == Architecture::qwen3_moe ? "moe_intermediate_size" : "intermediate_size");
  model.norm_epsilon = static_cast<float>(config.required(config.number("rms_norm_eps"), "rms_norm_eps"));
  if (!(model.norm_epsilon >= 0 && model.norm_epsilon < 1)) {
    config.refuse("rms_norm_eps", text("is ", model.norm_epsilon, "; expected 0 to 1"));
  }
  model.tied_embeddings = config.boolean("tie_word_embeddings").value_or(false);
  read_attention(config, model);
  read_differences(config, model);
  refuse_what_is_not_implemented(config, model);
  model.end_tokens = end_tokens_of(config, model.vocab_size);
  if (const auto path = folder / "generation_config.json"; std::filesystem::exists(path)) {
    const Json generation = read_json(path);
    if (auto tokens = end_tokens_of(JsonObject(generation, path.string()), model.vocab_size); !tokens.empty()) {
      model.end_tokens = std::move(tokens);
    }
  }
  return model;
}

}  // namespace moelink::engine

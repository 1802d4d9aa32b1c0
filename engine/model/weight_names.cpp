#include "engine/model/weight_names.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "engine/base/text.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

/// Takes `prefix` off the front of `name`, if it is there.
bool take(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) {
    return false;
  }
  name.remove_prefix(prefix.size());
  return true;
}

/// "12." off the front of `name`.
std::optional<std::int64_t> take_index(std::string_view& name) {
  std::int64_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') {
    return {};
  }
  name.remove_prefix(static_cast<std::size_t>(end - name.data()) + 1);
  return index;
}

bool is_one_of(std::string_view name, const auto& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 3> kOutsideOfLayers = {"model.embed_tokens.weight", "model.norm.weight",
                                                              "lm_head.weight"};
constexpr std::array<std::string_view, 6> kOfEachLayer = {"input_layernorm.weight",  "post_attention_layernorm.weight",
                                                          "self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                                          "self_attn.v_proj.weight", "self_attn.o_proj.weight"};
constexpr std::array<std::string_view, 2> kHeadNorms = {"self_attn.q_norm.weight", "self_attn.k_norm.weight"};
constexpr std::array<std::string_view, 3> kExperts = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"};
constexpr std::array<std::string_view, 3> kMixtralExperts = {"w1.weight", "w2.weight", "w3.weight"};

[[noreturn]] void refuse(const std::string& origin, const std::string& name, const std::string& complaint) {
  throw Error(ErrorCode::invalid_argument, text(origin, ": tensor ", name, ' ', complaint));
}

/// One more than the largest index that follows `prefix` in any name.
std::int64_t count_of(const std::vector<std::string>& names, std::string_view prefix) {
  std::int64_t count = 0;
  for (std::string_view name : names) {
    if (take(name, prefix)) {
      count = std::max(count, take_index(name).value_or(-1) + 1);
    }
  }
  return count;
}

/// Whether tensor `part` of an expert exists.
bool is_of_expert(const ModelConfig& config, std::string_view part) {
  return config.architecture == Architecture::mixtral ? is_one_of(part, kMixtralExperts) : is_one_of(part, kExperts);
}

}  // namespace

void refuse_unknown_tensors(const ModelConfig& config, const std::vector<std::string>& names,
                            const std::string& origin) {
  constexpr std::string_view kLayers = "model.layers.";
  const std::string_view block = config.architecture == Architecture::mixtral ? "block_sparse_moe." : "mlp.";
  for (const std::string& name : names) {
    std::string_view rest = name;
    if (rest.ends_with("rotary_emb.inv_freq") || is_one_of(rest, kOutsideOfLayers)) {
      continue;
    }
    const auto layer = take(rest, kLayers) ? take_index(rest) : std::nullopt;
    if (!layer) {
      refuse(origin, name, text("is no part of a model of architecture ", name_of(config.architecture)));
    }
    if (*layer >= config.num_layers) {
      refuse(origin, name,
             text("is of a layer that config.json does not have: num_hidden_layers is ", config.num_layers,
                  ", the weights have ", count_of(names, kLayers), " layers"));
    }
    if (is_one_of(rest, kOfEachLayer) || (config.qk_norm != QkNorm::none && is_one_of(rest, kHeadNorms))) {
      continue;
    }
    const bool of_block = take(rest, block);
    if (of_block && rest == "gate.weight") {
      continue;
    }
    const auto expert = of_block && take(rest, "experts.") ? take_index(rest) : std::nullopt;
    if (!expert || !is_of_expert(config, rest)) {
      refuse(origin, name,
             text("is a part of a layer that ", name_of(config.architecture),
                  " does not have here; without it the result would be another model's"));
    }
    if (*expert >= config.num_experts) {
      refuse(origin, name,
             text("is of an expert that config.json does not have: it has ", config.num_experts, " experts, the layer ",
                  count_of(names, text(kLayers, *layer, '.', block, "experts."))));
    }
  }
}

}  // namespace moelink::engine

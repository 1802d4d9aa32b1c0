// config.json: the same model in every spelling; what cannot be, or is not implemented, is an error that names the key.
#include "engine/model/config.hpp"

#include <gtest/gtest.h>

#include "comm/expect_error.hpp"
#include "engine/model_folder.hpp"

namespace moelink::engine {
namespace {

using moelink::testing::expect_error;
using testing::data_folder;
using testing::ModelFolder;
using Json = nlohmann::json;

template <class Change>
ModelConfig config_with(const std::string& model, Change&& change) {
  const ModelFolder folder(model);
  folder.edit("config.json", change);
  return read_model_config(folder.path());
}

template <class Change>
void expect_refused(ErrorCode code, const std::vector<std::string>& words, Change&& change) {
  expect_error(code, words, [&] { (void)config_with("tiny-qwen3-moe", change); });
}

TEST(ModelConfig, Qwen3MoeIsRead) {
  const ModelConfig model = read_model_config(data_folder("tiny-qwen3-moe"));
  EXPECT_EQ(model.architecture, Architecture::qwen3_moe);
  EXPECT_EQ(model.hidden, 128);
  EXPECT_EQ(model.num_heads, 8);
  EXPECT_EQ(model.num_kv_heads, 2);
  EXPECT_EQ(model.head_dim, 32);
  EXPECT_EQ(model.num_experts, 16);
  EXPECT_EQ(model.top_k, 4);
  EXPECT_EQ(model.expert_intermediate, 64);
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.qk_norm, QkNorm::per_head);
  EXPECT_TRUE(model.normalise_top_k);
  EXPECT_EQ(model.end_tokens, std::vector<std::int32_t>{2});
}

TEST(ModelConfig, OlmoeAndMixtralDiffer) {
  const ModelConfig olmoe = read_model_config(data_folder("tiny-olmoe"));
  EXPECT_EQ(olmoe.architecture, Architecture::olmoe);
  EXPECT_EQ(olmoe.qk_norm, QkNorm::all_heads);
  EXPECT_FALSE(olmoe.normalise_top_k);
  EXPECT_EQ(olmoe.expert_intermediate, 48);
  EXPECT_FALSE(olmoe.clip_qkv.has_value());
  const ModelConfig mixtral = read_model_config(data_folder("tiny-mixtral"));
  EXPECT_EQ(mixtral.architecture, Architecture::mixtral);
  EXPECT_EQ(mixtral.qk_norm, QkNorm::none);
  EXPECT_TRUE(mixtral.normalise_top_k);
  EXPECT_EQ(mixtral.head_dim, 16);
  EXPECT_EQ(mixtral.num_experts, 6);
}

TEST(ModelConfig, BothSpellingsOfRopeSettingsAreTheSame) {
  EXPECT_EQ(config_with("tiny-qwen3-moe",
                        [](Json& config) {
                          config.erase("rope_parameters");
                          config["rope_theta"] = 5e5;
                          config["rope_scaling"] = nullptr;
                        })
                .rope_theta,
            5e5);
  EXPECT_EQ(config_with("tiny-qwen3-moe", [](Json& config) { config["rope_theta"] = 1000000; }).rope_theta, 1e6);
  expect_refused(ErrorCode::invalid_argument, {"rope_theta", "10000"},
                 [](Json& config) { config["rope_theta"] = 10000; });
  expect_refused(ErrorCode::invalid_argument, {"rope_theta", "missing"},
                 [](Json& config) { config.erase("rope_parameters"); });
  expect_refused(ErrorCode::unsupported, {"yarn"}, [](Json& config) {
    config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  });
  expect_refused(ErrorCode::unsupported, {"linear"},
                 [](Json& config) { config["rope_parameters"]["rope_type"] = "linear"; });
}

TEST(ModelConfig, UnknownArchitectureNamesTheKnownOnes) {
  expect_refused(ErrorCode::unsupported, {"LlamaForCausalLM", "Qwen3MoeForCausalLM", "MixtralForCausalLM"},
                 [](Json& config) { config["architectures"] = {"LlamaForCausalLM"}; });
  expect_refused(ErrorCode::unsupported, {"architectures"}, [](Json& config) { config.erase("architectures"); });
}

TEST(ModelConfig, SizesThatCannotBeAreNamed) {
  const auto with = [](const char* key, const Json& value) { return [=](Json& config) { config[key] = value; }; };
  expect_refused(ErrorCode::invalid_argument, {"hidden_size", "0"}, with("hidden_size", 0));
  expect_refused(ErrorCode::invalid_argument, {"hidden_size"}, with("hidden_size", "128"));
  expect_refused(ErrorCode::invalid_argument, {"hidden_size", "missing"}, with("hidden_size", nullptr));
  expect_refused(ErrorCode::invalid_argument, {"vocab_size"}, with("vocab_size", std::int64_t{1} << 40));
  expect_refused(ErrorCode::invalid_argument, {"num_key_value_heads", "3"}, with("num_key_value_heads", 3));
  expect_refused(ErrorCode::invalid_argument, {"num_experts_per_tok", "17"}, with("num_experts_per_tok", 17));
  expect_refused(ErrorCode::invalid_argument, {"head_dim", "33"}, with("head_dim", 33));
  expect_refused(ErrorCode::invalid_argument, {"rms_norm_eps"}, with("rms_norm_eps", -1.0));
  expect_refused(ErrorCode::invalid_argument, {"num_experts", "num_local_experts"}, with("num_experts", 8));
}

TEST(ModelConfig, SettingsThatWouldChangeTheResultAreRefused) {
  const auto with = [](const char* key, const Json& value) { return [=](Json& config) { config[key] = value; }; };
  expect_refused(ErrorCode::unsupported, {"hidden_act", "gelu"}, with("hidden_act", "gelu"));
  expect_refused(ErrorCode::unsupported, {"attention_bias"}, with("attention_bias", true));
  expect_refused(ErrorCode::unsupported, {"mlp_only_layers"}, with("mlp_only_layers", Json::array({0})));
  expect_refused(ErrorCode::unsupported, {"decoder_sparse_step"}, with("decoder_sparse_step", 2));
  expect_refused(ErrorCode::unsupported, {"sliding_window", "128"}, [](Json& config) {
    config["use_sliding_window"] = true;
    config["sliding_window"] = 128;
  });
}

TEST(ModelConfig, EndTokensComeFromTheGenerationConfigFirst) {
  const ModelFolder folder("tiny-qwen3-moe");
  folder.edit("generation_config.json", [](Json& config) { config["eos_token_id"] = {5, 6}; });
  EXPECT_EQ(read_model_config(folder.path()).end_tokens, (std::vector<std::int32_t>{5, 6}));
  folder.edit("generation_config.json", [](Json& config) { config["eos_token_id"] = 1024; });
  expect_error(ErrorCode::invalid_argument, {"generation_config.json", "eos_token_id", "1024"},
               [&] { (void)read_model_config(folder.path()); });
}

TEST(ModelConfig, ClipOfOlmoeIsRead) {
  const auto clip = [](const Json& value) {
    return config_with("tiny-olmoe", [&](Json& config) { config["clip_qkv"] = value; }).clip_qkv;
  };
  EXPECT_EQ(clip(8.0), 8.0F);
  expect_error(ErrorCode::invalid_argument, {"clip_qkv"}, [&] { (void)clip(0.0); });
}

}  // namespace
}  // namespace moelink::engine

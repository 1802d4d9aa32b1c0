// The forward pass in float32 on the host, against the implementation of the architectures that others use.
#include "engine/model/model.hpp"

#include <gtest/gtest.h>

#include "comm/expect_error.hpp"
#include "engine/generation.hpp"
#include "engine/model/weight_names.hpp"

namespace moelink::engine {
namespace {

using moelink::testing::expect_error;
using testing::data_folder;
using testing::Expected;
using testing::expected_of;
using testing::relative_error;
using testing::Runner;
using testing::Sequence;

ModelOptions small_options() {
  return {.limits = {.max_rows = 1024, .max_logit_rows = 32, .max_sequences = 32, .num_pages = 512, .page_size = 4},
          .keep_routing = true};
}

class Reference : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<Expected> cases_ = expected_of(GetParam());
  Runner runner_{Communicator::single(Device::host()), data_folder(GetParam()), small_options()};
};

TEST_P(Reference, LogitsAndExpertsAreTheReferences) {
  ASSERT_GE(cases_.size(), 4U);
  double worst = 0;
  for (const Expected& expected : cases_) {
    Sequence sequence = runner_.sequence(expected.prompt, static_cast<std::int64_t>(expected.prompt.size()));
    const double error = relative_error(runner_.prefill(sequence), expected.logits);
    EXPECT_LE(error, 1e-3);
    worst = std::max(worst, error);
    for (std::size_t layer = 0; layer < expected.experts.size(); ++layer) {
      EXPECT_EQ(
          runner_.experts(static_cast<std::int64_t>(layer), static_cast<std::int64_t>(expected.prompt.size()) - 1),
          expected.experts[layer]);
    }
  }
  std::printf("%s: logits differ by at most %.1e of the largest\n", GetParam(), worst);
}

TEST_P(Reference, GreedyTokensAreTheReferences) {
  for (const Expected& expected : cases_) {
    EXPECT_EQ(runner_.generate(expected.prompt, expected.greedy.size()), expected.greedy);
  }
}

TEST_P(Reference, ChunksOfAPromptGiveTheSameBits) {
  for (const Expected& expected : cases_) {
    const auto size = static_cast<std::int64_t>(expected.prompt.size());
    Sequence whole = runner_.sequence(expected.prompt, size);
    const std::vector<float> logits = runner_.prefill(whole);
    // Many small steps only where the prompt is short: threads that share a loaded machine take long for each.
    for (const std::int64_t chunk : size < 64 ? std::vector<std::int64_t>{1, 3, 8} : std::vector<std::int64_t>{61}) {
      Sequence parts = runner_.sequence(expected.prompt, size);
      EXPECT_EQ(runner_.prefill(parts, chunk), logits) << "chunks of " << chunk;
    }
  }
}

TEST_P(Reference, CompanyInTheBatchDoesNotChangeABit) {
  const std::size_t num_tokens = 6;
  std::vector<std::vector<float>> alone;
  for (const Expected& expected : cases_) {
    Sequence sequence =
        runner_.sequence(expected.prompt, static_cast<std::int64_t>(expected.prompt.size() + num_tokens));
    for (std::size_t i = 0; i < num_tokens; ++i) {
      alone.push_back(runner_.prefill(sequence));
      sequence.tokens.push_back(Runner::likeliest(alone.back()));
    }
  }
  // Together: prompts in chunks beside others that decode already, rows that only fill up between them.
  std::vector<Sequence> sequences;
  for (const Expected& expected : cases_) {
    sequences.push_back(
        runner_.sequence(expected.prompt, static_cast<std::int64_t>(expected.prompt.size() + num_tokens)));
  }
  std::vector<std::size_t> num_found(cases_.size());
  const auto vocab = static_cast<std::ptrdiff_t>(runner_.model().config().vocab_size);
  while (std::any_of(num_found.begin(), num_found.end(), [&](std::size_t n) { return n < num_tokens; })) {
    Batch batch;
    std::vector<std::size_t> with_logits;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (num_found[i] == num_tokens) continue;
      const std::size_t before = batch.logit_rows.size();
      Runner::add(batch, sequences[i], sequences[i].tokens.size() < 64 ? 5 : 100);
      if (batch.logit_rows.size() > before) with_logits.push_back(i);
      batch.rows.push_back({.token = 1, .position = 0, .sequence = -1});
    }
    const std::vector<float> logits = runner_.step(batch);
    for (std::size_t j = 0; j < with_logits.size(); ++j) {
      const std::size_t i = with_logits[j];
      const auto first = logits.begin() + static_cast<std::ptrdiff_t>(j) * vocab;
      const std::vector<float> own(first, first + vocab);
      ASSERT_EQ(own, alone[i * num_tokens + num_found[i]]) << "case " << i << ", token " << num_found[i];
      sequences[i].tokens.push_back(Runner::likeliest(own));
      ++num_found[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Reference, ::testing::Values("tiny-qwen3-moe", "tiny-olmoe", "tiny-mixtral"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class Misuse : public ::testing::Test {
 protected:
  void expect_refused(const std::vector<std::string>& words, const Batch& batch) {
    expect_error(ErrorCode::invalid_argument, words, [&] { runner_.model().load(batch, runner_.stream()); });
  }

  Runner runner_{Communicator::single(Device::host()), data_folder("tiny-mixtral"),
                 ModelOptions{.limits = {.max_rows = 4,
                                         .max_logit_rows = 2,
                                         .max_sequences = 2,
                                         .num_pages = 8,
                                         .page_size = 4,
                                         .max_positions = 16}}};
};

TEST_F(Misuse, BatchesThatDoNotFitAreRefusedBeforeAnythingIsTouched) {
  expect_refused({"row 0", "token 256", "255"}, {.rows = {{.token = 256}}, .pages = {{0}}, .logit_rows = {}});
  expect_refused({"token -1"}, {.rows = {{.token = -1}}, .pages = {{0}}, .logit_rows = {}});
  expect_refused({"sequence 1"}, {.rows = {{.sequence = 1}}, .pages = {{0}}, .logit_rows = {}});
  expect_refused({"sequence -2"}, {.rows = {{.sequence = -2}}, .pages = {{0}}, .logit_rows = {}});
  expect_refused({"position 4", "1 pages"}, {.rows = {{.position = 4}}, .pages = {{0}}, .logit_rows = {}});
  expect_refused({"position 16", "at most 16"},
                 {.rows = {{.position = 16}}, .pages = {{0, 1, 2, 3}}, .logit_rows = {}});
  expect_refused({"position -1"}, {.rows = {{.position = -1}}, .pages = {{0}}, .logit_rows = {}});
  expect_refused({"page 8"}, {.rows = {}, .pages = {{8}}, .logit_rows = {}});
  expect_refused({"5 pages"}, {.rows = {}, .pages = {{0, 1, 2, 3, 4}}, .logit_rows = {}});
  expect_refused({"5 rows", "4"}, {.rows = std::vector<BatchRow>(5), .pages = {{0}}, .logit_rows = {}});
  expect_refused({"3 sequences"}, {.rows = {}, .pages = {{0}, {1}, {2}}, .logit_rows = {}});
  expect_refused({"3 rows with logits"}, {.rows = {{}}, .pages = {{0}}, .logit_rows = {0, 0, 0}});
  expect_refused({"logits of row 1"}, {.rows = {{}}, .pages = {{0}}, .logit_rows = {1}});
}

TEST_F(Misuse, RunOfAnotherShapeThanLoadedIsRefused) {
  runner_.model().load({.rows = {{.token = 1}}, .pages = {{0}}, .logit_rows = {0}}, runner_.stream());
  expect_error(ErrorCode::invalid_argument, {"2 rows", "1 and 1 were loaded"},
               [&] { runner_.model().run({.num_rows = 2, .num_logit_rows = 1}, runner_.stream()); });
}

TEST_F(Misuse, StepsWithoutRowsAreLegal) { EXPECT_TRUE(runner_.step({}).empty()); }

TEST_F(Misuse, RoutingThatIsNotKeptIsRefused) {
  expect_error(ErrorCode::invalid_argument, {"layer 0", "keep_routing"}, [&] { (void)runner_.model().expert_ids(0); });
}

TEST(ModelFiles, LimitsThatCannotBeAreNamed) {
  const auto expect_refused = [](const std::string& word, const ModelLimits& limits) {
    expect_error(ErrorCode::invalid_argument, {word}, [&] {
      const Model model(Communicator::single(Device::host()), data_folder("tiny-mixtral"), {.limits = limits});
    });
  };
  expect_refused("max_rows is 0", {.max_rows = 0});
  expect_refused("max_logit_rows is 9", {.max_rows = 8, .max_logit_rows = 9});
  expect_refused("page_size is -1", {.page_size = -1});
  expect_refused("max_positions is 17", {.num_pages = 4, .page_size = 4, .max_positions = 17});
}

TEST(ModelFiles, MissingTensorsAndOtherShapesAreNamed) {
  const testing::ModelFolder folder("tiny-mixtral");
  const auto expect_refused = [&](const std::vector<std::string>& words) {
    expect_error(ErrorCode::invalid_argument, words,
                 [&] { const Model model(Communicator::single(Device::host()), folder.path(), {}); });
  };
  folder.edit("config.json", [](nlohmann::json& config) { config["num_hidden_layers"] = 3; });
  expect_refused({"model.layers.2.input_layernorm.weight", "missing"});
  folder.edit("config.json", [](nlohmann::json& config) {
    config["num_hidden_layers"] = 2;
    config["num_local_experts"] = 7;
  });
  expect_refused({"model.layers.0.block_sparse_moe.gate.weight", "[6, 64]", "[7, 64]"});
}

TEST(ModelFiles, TensorsThatTheConfigurationDoesNotAskForAreNamed) {
  const testing::ModelFolder folder("tiny-mixtral");
  folder.edit("config.json", [](nlohmann::json& config) { config["num_hidden_layers"] = 1; });
  expect_error(ErrorCode::invalid_argument,
               {"tensor model.layers.1.", "num_hidden_layers is 1", "the weights have 2 layers"},
               [&] { const Model model(Communicator::single(Device::host()), folder.path(), {}); });
}

TEST(ModelFiles, WhatChangesNothingMayStandBesideWhatIsNeeded) {
  const ModelConfig mixtral = read_model_config(data_folder("tiny-mixtral"));
  const ModelConfig qwen = read_model_config(data_folder("tiny-qwen3-moe"));
  const auto accepted = [](const ModelConfig& config, const std::string& name) {
    EXPECT_NO_THROW(refuse_unknown_tensors(config, {name}, "here")) << name;
  };
  const auto refused = [](const ModelConfig& config, const std::string& name, const std::string& words) {
    expect_error(ErrorCode::invalid_argument, {"here", name, words},
                 [&] { refuse_unknown_tensors(config, {name}, "here"); });
  };
  accepted(mixtral, "model.layers.0.self_attn.rotary_emb.inv_freq");
  accepted(mixtral, "model.rotary_emb.inv_freq");
  accepted(mixtral, "lm_head.weight");
  accepted(mixtral, "model.layers.1.block_sparse_moe.experts.5.w3.weight");
  accepted(qwen, "model.layers.3.mlp.experts.15.up_proj.weight");
  accepted(qwen, "model.layers.3.self_attn.q_norm.weight");
  refused(mixtral, "model.layers.0.self_attn.q_norm.weight", "a part of a layer");
  refused(mixtral, "model.layers.0.self_attn.q_proj.bias", "a part of a layer");
  refused(mixtral, "model.layers.1.block_sparse_moe.experts.6.w3.weight", "6 experts, the layer 7");
  refused(qwen, "model.layers.0.mlp.shared_expert.up_proj.weight", "a part of a layer");
  refused(qwen, "model.layers.0.block_sparse_moe.gate.weight", "a part of a layer");
  refused(qwen, "model.layers.x.mlp.gate.weight", "no part of a model");
  refused(qwen, "visual.patch_embed.weight", "no part of a model");
}

TEST(ModelFiles, ProgressIsReported) {
  std::vector<double> parts;
  const Model model(Communicator::single(Device::host()), data_folder("tiny-mixtral"),
                    {.progress = [&](double part) { parts.push_back(part); }});
  ASSERT_GE(parts.size(), 2U);
  EXPECT_TRUE(std::is_sorted(parts.begin(), parts.end()));
  EXPECT_EQ(parts.back(), 1.0);
}

TEST(ModelFiles, TimeInTheExchangeIsMeasured) {
  Runner runner(Communicator::single(Device::host()), data_folder("tiny-mixtral"), {.time_exchange = true});
  (void)runner.generate({1, 2, 3}, 2);
  EXPECT_GT(runner.model().exchange_time().dispatch_us, 0);
  EXPECT_GT(runner.model().exchange_time().combine_us, 0);
}

}  // namespace
}  // namespace moelink::engine

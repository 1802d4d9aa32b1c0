// The forward pass on a GPU, against the reference in fp32 and against the host in bf16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <optional>

#include "engine/generation.hpp"
#include "support/nvrtc.hpp"

namespace moelink::engine {
namespace {

using testing::data_folder;
using testing::Expected;
using testing::expected_of;
using testing::relative_error;
using testing::Runner;
using testing::Sequence;

ModelOptions options(DataType type) {
  return {.type = type, .limits = {.max_rows = 1024, .num_pages = 512, .page_size = 4}, .keep_routing = true};
}

class GpuModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (Device::cuda_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    MOELINK_NEEDS_NVRTC();
  }

  [[nodiscard]] static Runner on_gpu(DataType type) {
    return {Communicator::single(Device::cuda(0)), data_folder(GetParam()), options(type)};
  }
};

TEST_P(GpuModel, InFp32ItIsTheReference) {
  Runner runner = on_gpu(DataType::float32);
  double worst = 0;
  for (const Expected& expected : expected_of(GetParam())) {
    Sequence sequence = runner.sequence(expected.prompt, static_cast<std::int64_t>(expected.prompt.size()));
    worst = std::max(worst, relative_error(runner.prefill(sequence), expected.logits));
    for (std::size_t layer = 0; layer < expected.experts.size(); ++layer) {
      EXPECT_EQ(runner.experts(static_cast<std::int64_t>(layer), static_cast<std::int64_t>(expected.prompt.size()) - 1),
                expected.experts[layer]);
    }
    EXPECT_EQ(runner.generate(expected.prompt, expected.greedy.size()), expected.greedy);
    EXPECT_EQ(runner.generate(expected.prompt, expected.greedy.size(), 7), expected.greedy) << "in chunks";
  }
  EXPECT_LE(worst, 1e-3);
  std::printf("%s, fp32: logits differ by at most %.1e of the largest\n", GetParam(), worst);
}

/// What bf16 does to logits, as parts of the largest, and to choices.
struct Bf16Errors {
  std::vector<double> all;       ///< of every step
  std::vector<double> agreeing;  ///< of steps before which, and in which, no expert was chosen otherwise
  double reference = 0;          ///< of logits of the reference, the worst of agreeing ones; of all
  double reference_of_all = 0;
  int num_choices = 0;  ///< of a token's experts in a layer
  int num_flipped = 0;
  int num_wide = 0;  ///< steps in which the best token is far enough ahead

  [[nodiscard]] double mean() const {
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  }
  static double worst(const std::vector<double>& errors) {
    return errors.empty() ? 0 : *std::max_element(errors.begin(), errors.end());
  }
};

/// A token's experts in every layer, by number, for each row of the last step.
std::vector<std::vector<std::int32_t>> choices_of(Runner& runner, std::int64_t num_rows) {
  std::vector<std::vector<std::int32_t>> choices;
  for (std::int64_t layer = 0; layer < runner.model().config().num_layers; ++layer) {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      choices.push_back(runner.experts(layer, row));
      std::sort(choices.back().begin(), choices.back().end());
    }
  }
  return choices;
}

/// How far the best is ahead of the second.
float margin_of(std::vector<float> logits) {
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
  return logits[0] - logits[1];
}

float magnitude_of(const std::vector<float>& logits) {
  return std::accumulate(logits.begin(), logits.end(), 0.0F,
                         [](float most, float value) { return std::max(most, std::abs(value)); });
}

/// Rounded to bf16, what enters products and the cache is off by up to 2^-9, and these small random models make ten
/// times that of it. Two experts that are as good as equal then change places, which a larger error follows. So: logits
/// of the reference are within the bound unless experts have changed places; those that do are few; all errors together
/// are within it, too; and no token changes that is ahead by more than the bound allows.
TEST_P(GpuModel, InBf16ErrorsAreThoseOfItsRounding) {
  constexpr double kBound = 2e-2;
  Runner gpu = on_gpu(DataType::bfloat16);
  Runner host(Communicator::single(Device::host()), data_folder(GetParam()), options(DataType::float32));
  Bf16Errors errors;
  for (const Expected& expected : expected_of(GetParam())) {
    const auto size = static_cast<std::int64_t>(expected.prompt.size() + expected.greedy.size());
    Sequence ours = gpu.sequence(expected.prompt, size);
    Sequence reference = host.sequence(expected.prompt, size);
    bool agrees = true;
    for (const Token next : expected.greedy) {
      const auto num_rows = static_cast<std::int64_t>(ours.tokens.size()) - ours.num_computed;
      const std::vector<float> found = gpu.prefill(ours);
      const std::vector<float> wanted = host.prefill(reference);
      const auto our_choices = choices_of(gpu, num_rows);
      const auto their_choices = choices_of(host, num_rows);
      for (std::size_t i = 0; i < our_choices.size(); ++i) {
        errors.num_flipped += our_choices[i] != their_choices[i] ? 1 : 0;
      }
      errors.num_choices += static_cast<int>(our_choices.size());
      agrees = agrees && our_choices == their_choices;
      const double error = relative_error(found, wanted);
      errors.all.push_back(error);
      if (agrees) errors.agreeing.push_back(error);
      if (ours.tokens.size() == expected.prompt.size()) {
        const double of_reference = relative_error(found, expected.logits);
        errors.reference_of_all = std::max(errors.reference_of_all, of_reference);
        if (agrees) errors.reference = std::max(errors.reference, of_reference);
      }
      const float margin = margin_of(wanted);
      if (margin > 2 * kBound * magnitude_of(wanted)) {
        EXPECT_EQ(Runner::likeliest(found), Runner::likeliest(wanted)) << "margin " << margin << ", error " << error;
        ++errors.num_wide;
      }
      ours.tokens.push_back(next);  // both go on as the reference did
      reference.tokens.push_back(next);
    }
  }
  std::printf(
      "%s, bf16, differences of logits, of the largest: from the reference at most %.4f where experts agree (%.4f in "
      "all); in all %zu steps %.4f on average, at most %.4f (%.4f in the %zu where experts agree); %d of %d choices of "
      "experts flipped; %d margins are wide\n",
      GetParam(), errors.reference, errors.reference_of_all, errors.all.size(), errors.mean(),
      Bf16Errors::worst(errors.all), Bf16Errors::worst(errors.agreeing), errors.agreeing.size(), errors.num_flipped,
      errors.num_choices, errors.num_wide);
  EXPECT_LE(errors.reference, kBound);
  EXPECT_GT(errors.reference, 0) << "no prompt was left to compare";
  EXPECT_LE(errors.mean(), kBound);
  EXPECT_LE(errors.num_flipped * 25, errors.num_choices);
  EXPECT_GT(errors.num_wide * 2, static_cast<int>(errors.all.size()));
}

TEST_P(GpuModel, CapturedStepsGiveTheSameBits) {
  Runner runner = on_gpu(DataType::bfloat16);
  const std::vector<Token> prompt = expected_of(GetParam())[1].prompt;
  Sequence direct = runner.sequence(prompt, static_cast<std::int64_t>(prompt.size()) + 8);
  Sequence replayed = runner.sequence(prompt, static_cast<std::int64_t>(prompt.size()) + 8);
  (void)runner.prefill(replayed);
  std::optional<Graph> graph;
  for (int i = 0; i < 6; ++i) {
    const std::vector<float> logits = runner.prefill(direct);
    direct.tokens.push_back(Runner::likeliest(logits));
    replayed.tokens = direct.tokens;

    Batch batch;
    Runner::add(batch, replayed);
    batch.rows.push_back({.token = 0, .position = 0, .sequence = -1});  // fills up to the size that was captured
    runner.model().load(batch, runner.stream());
    if (!graph) {
      graph = Graph::record(runner.stream(), [&] { runner.model().run(shape_of(batch), runner.stream()); });
    }
    graph->launch(runner.stream());
    std::vector<float> found(static_cast<std::size_t>(runner.model().config().vocab_size));
    copy_bytes(found.data(), runner.model().logits().data, found.size() * sizeof(float), runner.stream());
    runner.stream().synchronize();
    runner.model().check();

    Batch again;
    again.pages = batch.pages;
    again.rows = batch.rows;
    again.logit_rows = batch.logit_rows;
    EXPECT_EQ(runner.step(again), found);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuModel, ::testing::Values("tiny-qwen3-moe", "tiny-olmoe", "tiny-mixtral"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moelink::engine

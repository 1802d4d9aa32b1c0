// The forward pass on a GPU: in fp32 against the reference, in bf16 against the host in fp32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "engine/bf16_errors.hpp"
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

class GpuModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (Device::cuda_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    MOELINK_NEEDS_NVRTC();
  }

  [[nodiscard]] static Runner on_gpu(DataType type) {
    return {Communicator::single(Device::cuda(0)), data_folder(GetParam()), testing::bf16_options(type)};
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

TEST_P(GpuModel, InBf16ErrorsAreThoseOfItsRounding) { testing::expect_errors_of_rounding(GetParam(), Device::cuda(0)); }

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

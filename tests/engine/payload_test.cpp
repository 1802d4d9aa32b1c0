// Rows quantised on their way to experts: what they stand for, how far logits move, and that it does not matter how
// ranks share the work.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "comm/expect_error.hpp"
#include "engine/generation.hpp"
#include "engine/kernels/dequantize.cuh"
#include "engine/random_values.hpp"
#include "moelink/kernel.hpp"
#include "moelink/quantize.hpp"
#include "perf/reference/block_format.hpp"

namespace moelink::engine {
namespace {

using testing::data_folder;
using testing::Expected;
using testing::expected_of;
using testing::Runner;
using testing::Sequence;

struct Format {
  Quantization name;
  QuantFormat in_kernels;
  double most_error;  ///< of logits, on average over steps, as a part of the largest: measured, and a half more
};
constexpr std::array kFormats = {
    Format{Quantization::fp8, QuantFormat::fp8, 0.14}, Format{Quantization::fp8_pow2, QuantFormat::fp8_pow2, 0.14},
    Format{Quantization::mxfp8, QuantFormat::mxfp8, 0.15}, Format{Quantization::mxfp4, QuantFormat::mxfp4, 0.53},
    Format{Quantization::nvfp4, QuantFormat::nvfp4, 0.48}};

ModelOptions options(Quantization payload, DataType type = DataType::float32) {
  return {.type = type,
          .payload = payload,
          .limits = {.max_rows = 512, .num_pages = 256, .page_size = 8},
          .keep_routing = true};
}

/// Those of a model's cases that take little time.
std::vector<Expected> short_cases_of(const char* model) {
  std::vector<Expected> cases = expected_of(model);
  std::erase_if(cases, [](const Expected& expected) { return expected.prompt.size() > 100; });
  return cases;
}

class PayloadFormats : public ::testing::TestWithParam<Format> {};

/// Against a reference that shares no code with the kernels; a hidden size with a short last block, too.
TEST_P(PayloadFormats, RowsBecomeWhatTheyStandFor) {
  for (const std::int64_t hidden : {128, 160}) {
    constexpr std::int64_t kRows = 5;
    const perf::BlockFormat format{.name = GetParam().name, .tensor_scale = 0.01F};
    const std::vector<float> values = testing::random_values(kRows * hidden, 3);
    const std::int64_t row_bytes = format.row_bytes(hidden);
    const std::int64_t scale_bytes = format.scale_bytes(hidden);
    std::vector<std::byte> rows(static_cast<std::size_t>(kRows * row_bytes));
    std::vector<std::byte> scales(static_cast<std::size_t>(kRows * scale_bytes));
    std::vector<float> expected(values.size());
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto part = [&](auto& all, std::int64_t size) {
        return std::span(all).subspan(static_cast<std::size_t>(row * size), static_cast<std::size_t>(size));
      };
      format.quantize(part(values, hidden), part(rows, row_bytes).data(), part(scales, scale_bytes).data());
      format.dequantize(part(rows, row_bytes).data(), part(scales, scale_bytes).data(), part(expected, hidden));
    }
    KernelSet kernels(Device::host(), {});
    const auto dequantize = kernels.add<Dequantize>(
        {.hidden = hidden, .threads = 1, .format = GetParam().in_kernels, .element = Element::float32});
    kernels.load();
    const Stream stream(Device::host());
    std::vector<float> found(values.size());
    const std::int64_t num_rows = kRows;
    dequantize.launch({.grid = 3},
                      {.rows = rows.data(),
                       .scales = scales.data(),
                       .scale_stride_bytes = scale_bytes,
                       .tensor_scale = &format.tensor_scale,
                       .output = found.data(),
                       .num_rows = &num_rows},
                      stream);
    stream.synchronize();
    EXPECT_EQ(found, expected) << hidden;
  }
}

/// Along the reference's tokens, against the same model without quantising; in fp32, and in bf16, whose rows are
/// quantised as they are.
TEST_P(PayloadFormats, LogitsAreWithinTheFormatsError) {
  for (const char* model : {"tiny-qwen3-moe", "tiny-olmoe", "tiny-mixtral"}) {
    for (const DataType type : {DataType::float32, DataType::bfloat16}) {
      Runner quantised(Communicator::single(Device::host()), data_folder(model), options(GetParam().name, type));
      Runner plain(Communicator::single(Device::host()), data_folder(model), options(Quantization::none));
      std::vector<double> errors;
      for (const Expected& expected : short_cases_of(model)) {
        const auto size = static_cast<std::int64_t>(expected.prompt.size() + expected.greedy.size());
        Sequence ours = quantised.sequence(expected.prompt, size);
        Sequence theirs = plain.sequence(expected.prompt, size);
        for (const Token next : expected.greedy) {
          errors.push_back(testing::relative_error(quantised.prefill(ours), plain.prefill(theirs)));
          ours.tokens.push_back(next);
          theirs.tokens.push_back(next);
        }
      }
      const double mean = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(errors.size());
      std::printf("%s, %s, %s rows: logits differ by %.3f of the largest on average, by at most %.3f\n", model,
                  std::string(name_of(type)).c_str(), std::string(name_of(GetParam().name)).c_str(), mean,
                  *std::max_element(errors.begin(), errors.end()));
      EXPECT_GT(mean, 0.03) << "nothing was quantised";
      EXPECT_LE(mean, GetParam().most_error);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PayloadFormats, ::testing::ValuesIn(kFormats),
                         [](const auto& param) { return std::string(name_of(param.param.name)); });

struct Case {
  const char* name;
  Parallelism parallelism;
  Mode mode;
  int num_ranks;
  int ranks_per_node = 0;
};

/// What all prompts of a model are continued with; with several ranks, as each of them finds.
std::vector<std::vector<Token>> continuations(const Communicator& communicator, const char* model,
                                              const ModelOptions& options) {
  Runner runner(communicator, data_folder(model), options);
  std::vector<std::vector<Token>> all;
  for (const Expected& expected : short_cases_of(model)) {
    all.push_back(runner.generate(expected.prompt, expected.greedy.size()));
  }
  return all;
}

class PayloadRanks : public ::testing::TestWithParam<Case> {};

TEST_P(PayloadRanks, TokensAreThoseOfOneRank) {
  const Case c = GetParam();
  for (const auto& [format, model] :
       {std::pair{Quantization::fp8, "tiny-qwen3-moe"}, std::pair{Quantization::nvfp4, "tiny-mixtral"}}) {
    ModelOptions quantising = options(format);
    const auto expected = continuations(Communicator::single(Device::host()), model, quantising);
    quantising.parallelism = c.parallelism;
    quantising.mode = c.mode;
    const auto ranks = Communicator::in_process(c.num_ranks, {.ranks_per_node = c.ranks_per_node});
    on_every_rank(ranks, [&](const Communicator& communicator) {
      EXPECT_EQ(continuations(communicator, model, quantising), expected)
          << name_of(format) << ", " << model << ", rank " << communicator.rank();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, PayloadRanks,
                         ::testing::Values(Case{"tensor_2", Parallelism::tensor, Mode::tensor_parallel, 2},
                                           Case{"tensor_4", Parallelism::tensor, Mode::tensor_parallel, 4},
                                           Case{"nvlink_1", Parallelism::data, Mode::nvlink, 1},
                                           Case{"nvlink_2", Parallelism::data, Mode::nvlink, 2},
                                           Case{"nvlink_4", Parallelism::data, Mode::nvlink, 4},
                                           Case{"p2p_2", Parallelism::data, Mode::p2p, 2, 1},
                                           Case{"p2p_4_nodes_of_2", Parallelism::data, Mode::p2p, 4, 2}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Payload, RowsThatDoNotFitItsUnitsAreNamed) {
  ModelConfig config = read_model_config(data_folder("tiny-qwen3-moe"));
  config.hidden = 48;
  moelink::testing::expect_error(
      ErrorCode::unsupported, {"hidden_size is 48", "mxfp4", "multiple of 32", "another payload"}, [&] {
        (void)Model(Communicator::single(Device::host()), config, RandomWeights(1), options(Quantization::mxfp4));
      });
}

}  // namespace
}  // namespace moelink::engine

// Engines on one GPU: captured steps, and two ranks that share it, give the reference's tokens in fp32.
#include <gtest/gtest.h>

#include <cstdlib>
#include <list>
#include <optional>

#include "engine/generation.hpp"
#include "engine/requests/engine.hpp"
#include "support/nvrtc.hpp"

namespace moelink::engine {
namespace {

using testing::data_folder;
using testing::Expected;
using testing::expected_of;

// Read when the driver initialises. cuBLAS would load its kernels when they are first used, which may wait for kernels
// that wait for a rank that is about to load one.
const int kLoadedAtOnce = setenv("CUDA_MODULE_LOADING", "EAGER", 0);

struct Case {
  const char* model;
  Parallelism parallelism;
  int num_ranks;
  bool graphs;
};

class GpuRanks : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    ASSERT_EQ(kLoadedAtOnce, 0);
    if (Device::cuda_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    MOELINK_NEEDS_NVRTC();
  }
};

struct Result {
  std::vector<Token> tokens;
  std::optional<Finish> finish;
};

/// Data: cases are dealt out; the last rank has none for a while. Tensor: every rank is asked the same.
void generate(const Communicator& communicator, const Case& c, const std::vector<Expected>& cases) {
  EngineOptions options{.model = {.type = DataType::float32,
                                  .parallelism = c.parallelism,
                                  .limits = {.max_rows = 64, .max_decode_rows = 16, .num_pages = 512, .page_size = 8},
                                  .time_exchange = true},
                        .graphs = c.graphs};
  Engine engine(communicator, data_folder(c.model), options);
  std::list<Result> results;
  std::vector<const Expected*> expected;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const bool mine = static_cast<int>(i) % communicator.size() == communicator.rank();
    if (c.parallelism == Parallelism::data && !mine) {
      continue;
    }
    expected.push_back(&cases[i]);
    Result& result = results.emplace_back();
    (void)engine.submit({.prompt = cases[i].prompt,
                         .max_tokens = static_cast<std::int64_t>(cases[i].greedy.size()),
                         .ignore_end_tokens = true,
                         .on_token =
                             [&result](Token token) {
                               result.tokens.push_back(token);
                               return true;
                             },
                         .on_finish = [&result](const Finish& finish) { result.finish = finish; }});
  }
  while (engine.step()) {
  }
  auto at = expected.begin();
  for (const Result& result : results) {
    ASSERT_TRUE(result.finish);
    EXPECT_EQ(result.finish->reason, FinishReason::length) << result.finish->error;
    EXPECT_EQ(result.tokens, (*at++)->greedy) << "rank " << communicator.rank();
  }
  const EngineStats stats = engine.stats();
  if (c.graphs) {
    EXPECT_LT(stats.measured_us, stats.step_us) << "no step was a replay";
  } else {
    EXPECT_EQ(stats.measured_us, stats.step_us);
  }
}

TEST_P(GpuRanks, TokensAreThoseOfOneRankOnTheHost) {
  const Case c = GetParam();
  const std::vector<Expected> cases = expected_of(c.model);
  const auto ranks = Communicator::in_process(c.num_ranks, {.devices = {0}, .deadline = std::chrono::seconds(30)});
  on_every_rank(ranks, [&](const Communicator& communicator) { generate(communicator, c, cases); });
}

INSTANTIATE_TEST_SUITE_P(Models, GpuRanks,
                         ::testing::Values(Case{"tiny-qwen3-moe", Parallelism::data, 1, false},
                                           Case{"tiny-qwen3-moe", Parallelism::data, 1, true},
                                           Case{"tiny-qwen3-moe", Parallelism::data, 2, false},
                                           Case{"tiny-qwen3-moe", Parallelism::data, 2, true},
                                           Case{"tiny-qwen3-moe", Parallelism::tensor, 2, true},
                                           Case{"tiny-olmoe", Parallelism::data, 2, true},
                                           Case{"tiny-mixtral", Parallelism::data, 2, true}),
                         [](const auto& param) {
                           std::string name = param.param.model;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (param.param.parallelism == Parallelism::data ? "_data_" : "_tensor_") +
                                  std::to_string(param.param.num_ranks) + (param.param.graphs ? "_graphs" : "");
                         });

}  // namespace
}  // namespace moelink::engine

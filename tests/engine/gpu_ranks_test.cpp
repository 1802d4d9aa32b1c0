// Engines on GPUs: captured steps, two ranks that share a GPU, and two that have one each give the reference's tokens in fp32.
#include <gtest/gtest.h>

#include <cstdlib>
#include <list>
#include <numeric>
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
  int num_devices = 1;
};

class GpuRanks : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    ASSERT_EQ(kLoadedAtOnce, 0);
    if (Device::cuda_count() < GetParam().num_devices) {
      GTEST_SKIP() << "CUDA devices: " << Device::cuda_count() << " of " << GetParam().num_devices;
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
  std::vector<int> devices(static_cast<std::size_t>(c.num_devices));
  std::iota(devices.begin(), devices.end(), 0);
  const auto ranks = Communicator::in_process(c.num_ranks, {.devices = devices, .deadline = std::chrono::seconds(30)});
  on_every_rank(ranks, [&](const Communicator& communicator) { generate(communicator, c, cases); });
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  std::string name = c.model;
  std::replace(name.begin(), name.end(), '-', '_');
  return name + (c.parallelism == Parallelism::data ? "_data_" : "_tensor_") + std::to_string(c.num_ranks) +
         (c.graphs ? "_graphs" : "");
}

INSTANTIATE_TEST_SUITE_P(OneGpu, GpuRanks,
                         ::testing::Values(Case{"tiny-qwen3-moe", Parallelism::data, 1, false},
                                           Case{"tiny-qwen3-moe", Parallelism::data, 1, true},
                                           Case{"tiny-qwen3-moe", Parallelism::data, 2, false},
                                           Case{"tiny-qwen3-moe", Parallelism::data, 2, true},
                                           Case{"tiny-qwen3-moe", Parallelism::tensor, 2, true},
                                           Case{"tiny-olmoe", Parallelism::data, 2, true},
                                           Case{"tiny-mixtral", Parallelism::data, 2, true}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(AGpuEach, GpuRanks,
                         ::testing::Values(Case{"tiny-qwen3-moe", Parallelism::data, 2, false, 2},
                                           Case{"tiny-qwen3-moe", Parallelism::data, 2, true, 2},
                                           Case{"tiny-qwen3-moe", Parallelism::tensor, 2, true, 2},
                                           Case{"tiny-olmoe", Parallelism::data, 2, true, 2},
                                           Case{"tiny-mixtral", Parallelism::data, 2, true, 2},
                                           Case{"tiny-qwen3-moe", Parallelism::data, 4, true, 4},
                                           Case{"tiny-qwen3-moe", Parallelism::tensor, 4, true, 4}),
                         name_of);

}  // namespace
}  // namespace moelink::engine

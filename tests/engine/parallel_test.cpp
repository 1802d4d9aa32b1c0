// Several ranks in float32 on the host: the same tokens as one rank, whichever way the work is shared.
#include <gtest/gtest.h>

#include "comm/expect_error.hpp"
#include "engine/generation.hpp"

namespace moelink::engine {
namespace {

using testing::data_folder;
using testing::Expected;
using testing::expected_of;
using testing::Runner;
using testing::Sequence;

struct Case {
  const char* model;
  Parallelism parallelism;
  int num_ranks;
  int ranks_per_node = 0;  ///< p2p between nodes of so many ranks; 0: one node
};

class Ranks : public ::testing::TestWithParam<Case> {
 protected:
  ModelOptions options_{.parallelism = GetParam().parallelism,
                        .limits = {.max_rows = 512, .num_pages = 256, .page_size = 8}};
  std::vector<Expected> cases_ = expected_of(GetParam().model);
};

/// Every rank computes every request; each must find the same.
void generate_together(const Communicator& communicator, const Case& c, const ModelOptions& options,
                       const std::vector<Expected>& cases) {
  Runner runner(communicator, data_folder(c.model), options);
  for (const Expected& expected : cases) {
    EXPECT_EQ(runner.generate(expected.prompt, expected.greedy.size()), expected.greedy)
        << "rank " << communicator.rank();
  }
}

/// Requests are dealt out; a rank that has none left still takes part in every step of the others.
void generate_apart(const Communicator& communicator, const Case& c, const ModelOptions& options,
                    const std::vector<Expected>& cases) {
  Runner runner(communicator, data_folder(c.model), options);
  std::size_t num_steps = 0;
  std::size_t num_own = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const bool mine = static_cast<int>(i) % communicator.size() == communicator.rank();
    if (i % static_cast<std::size_t>(communicator.size()) == 0) {
      num_steps += cases[0].greedy.size();
    }
    if (mine) {
      EXPECT_EQ(runner.generate(cases[i].prompt, cases[i].greedy.size()), cases[i].greedy)
          << "rank " << communicator.rank();
      num_own += cases[i].greedy.size();
    }
  }
  for (; num_own < num_steps; ++num_own) {
    EXPECT_TRUE(runner.step({}).empty());
  }
}

TEST_P(Ranks, TokensAreTheReferences) {
  const Case c = GetParam();
  if (c.ranks_per_node > 0) {
    options_.mode = Mode::p2p;
  }
  const auto ranks = Communicator::in_process(c.num_ranks, {.ranks_per_node = c.ranks_per_node});
  on_every_rank(ranks, [&](const Communicator& communicator) {
    if (c.parallelism == Parallelism::tensor) {
      generate_together(communicator, c, options_, cases_);
    } else {
      generate_apart(communicator, c, options_, cases_);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Models, Ranks,
    ::testing::Values(Case{"tiny-qwen3-moe", Parallelism::tensor, 2}, Case{"tiny-qwen3-moe", Parallelism::tensor, 4},
                      Case{"tiny-olmoe", Parallelism::tensor, 2}, Case{"tiny-mixtral", Parallelism::tensor, 2},
                      Case{"tiny-qwen3-moe", Parallelism::data, 2}, Case{"tiny-qwen3-moe", Parallelism::data, 4},
                      Case{"tiny-olmoe", Parallelism::data, 4}, Case{"tiny-mixtral", Parallelism::data, 2},
                      Case{"tiny-qwen3-moe", Parallelism::data, 2, 1}, Case{"tiny-qwen3-moe", Parallelism::data, 4, 2},
                      Case{"tiny-olmoe", Parallelism::data, 2, 1}),
    [](const auto& param) {
      std::string name = param.param.model;
      std::replace(name.begin(), name.end(), '-', '_');
      return name + (param.param.parallelism == Parallelism::tensor ? "_tensor_" : "_data_") +
             std::to_string(param.param.num_ranks) +
             (param.param.ranks_per_node == 0 ? "" : "_nodes_of_" + std::to_string(param.param.ranks_per_node));
    });

TEST(RanksWithRowsOfTheirOwn, AreNotTakenForOnesWithTheSameRows) {
  const ModelOptions options{.parallelism = Parallelism::data, .mode = Mode::tensor_parallel};
  on_every_rank(Communicator::in_process(2), [&](const Communicator& communicator) {
    moelink::testing::expect_error(ErrorCode::invalid_argument, {"tensor_parallel", "same rows"},
                                   [&] { const Model model(communicator, data_folder("tiny-mixtral"), options); });
  });
}

}  // namespace
}  // namespace moelink::engine

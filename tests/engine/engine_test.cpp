// Requests in, tokens out: the reference's tokens, whatever else runs, in whatever parts, on however many ranks.
#include "engine/requests/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <stdexcept>

#include "comm/expect_error.hpp"
#include "engine/generation.hpp"

namespace moelink::engine {
namespace {

using moelink::testing::expect_error;
using testing::data_folder;
using testing::Expected;
using testing::expected_of;

const char* const kModel = "tiny-qwen3-moe";

const std::vector<Expected>& cases() {
  static const std::vector<Expected> all = expected_of(kModel);
  return all;
}

/// The cases with short prompts: many steps over a long one take long.
std::vector<Expected> short_cases() {
  std::vector<Expected> all = cases();
  std::erase_if(all, [](const Expected& c) { return c.prompt.size() > 40; });
  return all;
}

/// What came of a request.
struct Result {
  std::vector<Token> tokens;
  std::optional<Finish> finish;
};

class Client {
 public:
  Client(const Communicator& communicator, const EngineOptions& options)
      : engine_(communicator, data_folder(kModel), options) {}

  [[nodiscard]] Engine& engine() { return engine_; }

  /// The result is filled in by later steps, and stays where it is.
  Result& submit(Request request) {
    Result& result = results_.emplace_back();
    request.on_token = [&result](Token token) {
      EXPECT_FALSE(result.finish);
      result.tokens.push_back(token);
      return true;
    };
    request.on_finish = [&result](const Finish& finish) {
      EXPECT_FALSE(result.finish);
      result.finish = finish;
    };
    last_ = engine_.submit(std::move(request));
    return result;
  }
  Result& submit(const Expected& expected) { return submit(greedy(expected)); }
  [[nodiscard]] RequestId last() const { return last_; }

  static Request greedy(const Expected& expected) {
    return {.prompt = expected.prompt,
            .max_tokens = static_cast<std::int64_t>(expected.greedy.size()),
            .ignore_end_tokens = true};
  }

  void run() {
    while (engine_.step()) {
    }
    EXPECT_EQ(engine_.num_free_pages(), engine_.model().limits().num_pages) << "pages were lost";
  }

 private:
  Engine engine_;
  std::list<Result> results_;
  RequestId last_{};
};

void expect_greedy(const Result& result, const Expected& expected) {
  ASSERT_TRUE(result.finish);
  EXPECT_EQ(result.finish->reason, FinishReason::length) << result.finish->error;
  EXPECT_EQ(result.finish->num_tokens, static_cast<std::int64_t>(expected.greedy.size()));
  EXPECT_EQ(result.tokens, expected.greedy);
}

EngineOptions options_with(std::int64_t max_step_rows, std::int64_t num_pages = 256, std::int64_t page_size = 8) {
  return {.model = {.limits = {.max_rows = 256, .num_pages = num_pages, .page_size = page_size}},
          .max_step_rows = max_step_rows,
          .num_threads = 1};
}

const Communicator& alone() {
  static const Communicator single = Communicator::single(Device::host());
  return single;
}

TEST(Engine, RequestsOneAfterTheOtherGiveTheReferencesTokens) {
  Client client(alone(), options_with(0));
  for (const Expected& expected : cases()) {
    const Result& result = client.submit(expected);
    client.run();
    expect_greedy(result, expected);
    EXPECT_GT(result.finish->time_to_first_token_us, 0);
    EXPECT_GT(result.finish->time_per_token_us, 0);
  }
}

TEST(Engine, RequestsTogetherInAnyOrderGiveTheReferencesTokens) {
  Client client(alone(), options_with(0));
  for (const bool backwards : {false, true}) {
    std::vector<Expected> all = cases();
    if (backwards) std::reverse(all.begin(), all.end());
    std::vector<const Result*> results;
    for (const Expected& expected : all) results.push_back(&client.submit(expected));
    client.run();
    for (std::size_t i = 0; i < all.size(); ++i) expect_greedy(*results[i], all[i]);
  }
}

TEST(Engine, PromptsInChunksBesideOthersGiveTheReferencesTokens) {
  const std::vector<Expected> all = short_cases();
  ASSERT_GE(all.size(), 3U);
  for (const std::int64_t rows : {1, 3, 7}) {
    Client client(alone(), options_with(rows));
    std::vector<const Result*> results;
    for (const Expected& expected : all) {
      results.push_back(&client.submit(expected));
      for (int i = 0; i < 4; ++i) client.engine().step();  // the next one joins while this one runs
    }
    client.run();
    for (std::size_t i = 0; i < all.size(); ++i) expect_greedy(*results[i], all[i]);
    EXPECT_LE(client.engine().stats().num_rows, rows * client.engine().stats().num_steps);
  }
}

TEST(Engine, TheStartOfAPromptIsNotComputedTwice) {
  Client client(alone(), options_with(0));
  const Expected& longest = *std::max_element(
      cases().begin(), cases().end(), [](const auto& a, const auto& b) { return a.prompt.size() < b.prompt.size(); });
  const auto whole_pages = static_cast<std::int64_t>((longest.prompt.size() - 1) / 8 * 8);
  const Result& first = client.submit(longest);
  while (first.tokens.empty()) ASSERT_TRUE(client.engine().step());
  const Result& beside = client.submit(longest);  // while the first still has its pages
  client.run();
  const std::int64_t rows_before = client.engine().stats().num_rows;
  const Result& after = client.submit(longest);
  client.run();
  expect_greedy(first, longest);
  expect_greedy(beside, longest);
  expect_greedy(after, longest);
  EXPECT_EQ(first.finish->num_reused_tokens, 0);
  EXPECT_EQ(beside.finish->num_reused_tokens, whole_pages);
  EXPECT_EQ(after.finish->num_reused_tokens, whole_pages);
  EXPECT_EQ(client.engine().stats().num_rows - rows_before,
            static_cast<std::int64_t>(longest.prompt.size() + longest.greedy.size() - 1) - whole_pages);
}

TEST(Engine, TheSamePromptTwiceInOneStepDoesNotShareWhatIsBeingWritten) {
  Client client(alone(), options_with(0));
  const Expected& expected = cases().front();
  const Result& first = client.submit(expected);
  const Result& second = client.submit(expected);
  client.run();
  expect_greedy(first, expected);
  expect_greedy(second, expected);
  EXPECT_EQ(second.finish->num_reused_tokens, 0);
}

TEST(Engine, ACacheTooSmallForAllGivesEachItsTokensAllTheSame) {
  const std::vector<Expected> all = short_cases();
  std::int64_t longest = 0;
  for (const Expected& c : all) {
    longest = std::max(longest, static_cast<std::int64_t>(c.prompt.size() + c.greedy.size() - 1));
  }
  Client client(alone(), options_with(0, (longest + 3) / 4, 4));  // the longest alone has all pages
  std::vector<const Result*> results;
  for (const Expected& expected : all) results.push_back(&client.submit(expected));
  client.run();
  for (std::size_t i = 0; i < all.size(); ++i) expect_greedy(*results[i], all[i]);
  EXPECT_GT(client.engine().stats().num_preempted, 0) << "the test is about requests that lose their pages";
}

TEST(Engine, CancelEndsARequestAndNoOther) {
  const std::vector<Expected> all = short_cases();
  Client client(alone(), options_with(7));
  const Result& kept = client.submit(all[0]);
  const Result& in_the_middle = client.submit(all[1]);
  const RequestId middle = client.last();
  const Result& in_the_queue = client.submit(all[2]);
  client.engine().cancel(client.last());
  while (in_the_middle.tokens.size() < 3) ASSERT_TRUE(client.engine().step());
  client.engine().cancel(middle);
  client.engine().cancel(middle);
  client.engine().cancel(RequestId{999});
  client.run();
  expect_greedy(kept, all[0]);
  EXPECT_EQ(in_the_middle.finish->reason, FinishReason::cancelled);
  EXPECT_EQ(in_the_middle.tokens.size(), 3U);
  EXPECT_EQ(in_the_queue.finish->reason, FinishReason::cancelled);
  EXPECT_TRUE(in_the_queue.tokens.empty());
}

TEST(Engine, AListenerThatLeavesOrThrowsEndsItsRequestAlone) {
  const std::vector<Expected> all = short_cases();
  Client client(alone(), options_with(0));
  const Result& kept = client.submit(all[0]);
  Request leaves = Client::greedy(all[1]);
  std::optional<Finish> left;
  leaves.on_token = [](Token) { return false; };
  leaves.on_finish = [&](const Finish& finish) { left = finish; };
  client.engine().submit(std::move(leaves));
  Request throws = Client::greedy(all[2]);
  std::optional<Finish> failed;
  throws.on_token = [](Token) -> bool { throw std::runtime_error("the pipe is broken"); };
  throws.on_finish = [&](const Finish& finish) {
    failed = finish;
    throw std::runtime_error("nobody listens");
  };
  client.engine().submit(std::move(throws));
  client.run();
  expect_greedy(kept, all[0]);
  EXPECT_EQ(left->reason, FinishReason::cancelled);
  EXPECT_EQ(left->num_tokens, 1);
  EXPECT_EQ(failed->reason, FinishReason::failed);
  EXPECT_EQ(failed->error, "the pipe is broken");
}

TEST(Engine, AStopTokenEndsARequestAndIsNotHandedOut) {
  Client client(alone(), options_with(0));
  const Expected& expected = cases().front();
  Request request = Client::greedy(expected);
  request.stop_tokens = {expected.greedy[5]};
  const auto end = std::find(expected.greedy.begin(), expected.greedy.end(), expected.greedy[5]);
  const Result& result = client.submit(std::move(request));
  client.run();
  EXPECT_EQ(result.finish->reason, FinishReason::stop);
  EXPECT_EQ(result.tokens, std::vector<Token>(expected.greedy.begin(), end));
}

TEST(Engine, ASeedGivesTheSameTokensAloneAndBesideOthers) {
  const std::vector<Expected> all = short_cases();
  const auto sampled = [&](std::uint64_t seed) {
    Request request = Client::greedy(all[0]);
    request.sampling = {.temperature = 1.5, .top_k = 50, .top_p = 0.95, .seed = seed};
    return request;
  };
  Client client(alone(), options_with(0));
  const Result& by_itself = client.submit(sampled(1));
  client.run();
  const Result& beside = client.submit(all[1]);
  const Result& again = client.submit(sampled(1));
  const Result& other = client.submit(sampled(2));
  client.run();
  expect_greedy(beside, all[1]);
  EXPECT_EQ(by_itself.tokens.size(), all[0].greedy.size());
  EXPECT_EQ(again.tokens, by_itself.tokens);
  EXPECT_NE(other.tokens, by_itself.tokens);
}

TEST(Engine, RequestsThatCannotBeServedAreRefusedAndHarmNobody) {
  Client client(alone(), options_with(0, 8, 8));  // 64 positions
  const Expected& expected = cases().front();
  const Result& kept = client.submit(expected);
  client.engine().step();
  const auto refused = [&](ErrorCode code, const char* what, const Request& request) {
    expect_error(code, {what}, [&] { client.engine().submit(request); });
  };
  refused(ErrorCode::invalid_argument, "the prompt is empty", {});
  refused(ErrorCode::invalid_argument, "token -1", {.prompt = {5, -1}});
  refused(ErrorCode::invalid_argument, "token 1000000", {.prompt = {1000000}});
  refused(ErrorCode::invalid_argument, "max_tokens is -2", {.prompt = {5}, .max_tokens = -2});
  refused(ErrorCode::invalid_argument, "top_p is 2", {.prompt = {5}, .sampling = {.top_p = 2}});
  refused(ErrorCode::capacity, "65 tokens", {.prompt = std::vector<Token>(65, 5)});
  refused(ErrorCode::capacity, "do not fit 64 positions", {.prompt = std::vector<Token>(60, 5), .max_tokens = 6});
  client.run();
  expect_greedy(kept, expected);
}

TEST(Engine, ARequestMayFillTheCacheToItsLastPlace) {
  Client client(alone(), options_with(0, 8, 8));
  const Result& exact =
      client.submit({.prompt = std::vector<Token>(60, 5), .max_tokens = 5, .ignore_end_tokens = true});
  client.run();
  EXPECT_EQ(exact.tokens.size(), 5U);
  const Result& as_many_as_fit = client.submit({.prompt = std::vector<Token>(64, 5), .ignore_end_tokens = true});
  client.run();
  EXPECT_EQ(as_many_as_fit.tokens.size(), 1U);
  EXPECT_EQ(as_many_as_fit.finish->reason, FinishReason::length);
}

TEST(Engine, MoreRowsThanTheModelHasAreRefused) {
  expect_error(ErrorCode::invalid_argument, {"max_step_rows is 257", "256"},
               [] { Engine(alone(), data_folder(kModel), options_with(257)); });
}

struct Ranks {
  Parallelism parallelism;
  int num_ranks;
  int ranks_per_node = 0;  ///< p2p between nodes of so many ranks; 0: one node
};
class EngineRanks : public ::testing::TestWithParam<Ranks> {};

/// Data: cases are dealt out, and with four ranks the last has none. Tensor: every rank is asked the same.
TEST_P(EngineRanks, TokensAreThoseOfOneRank) {
  const Parallelism parallelism = GetParam().parallelism;
  const int num_ranks = GetParam().num_ranks;
  std::vector<Expected> all = short_cases();
  all.resize(3);
  const int ranks_per_node = GetParam().ranks_per_node;
  const auto ranks = Communicator::in_process(num_ranks, {.ranks_per_node = ranks_per_node});
  on_every_rank(ranks, [&](const Communicator& communicator) {
    EngineOptions options = options_with(16);
    options.model.parallelism = parallelism;
    options.model.mode = ranks_per_node == 0 ? Mode::automatic : Mode::p2p;
    Client client(communicator, options);
    std::map<std::size_t, const Result*> results;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (parallelism == Parallelism::tensor || static_cast<int>(i) % num_ranks == communicator.rank()) {
        results[i] = &client.submit(all[i]);
      }
    }
    client.run();
    for (const auto& [i, result] : results) expect_greedy(*result, all[i]);
  });
}
INSTANTIATE_TEST_SUITE_P(Parallel, EngineRanks,
                         ::testing::Values(Ranks{Parallelism::data, 2}, Ranks{Parallelism::data, 4},
                                           Ranks{Parallelism::tensor, 2}, Ranks{Parallelism::data, 2, 1},
                                           Ranks{Parallelism::data, 4, 2}, Ranks{Parallelism::data, 4, 1}),
                         [](const auto& param) {
                           const Ranks& ranks = param.param;
                           const std::string nodes = "_nodes_of_" + std::to_string(ranks.ranks_per_node);
                           return (ranks.parallelism == Parallelism::data ? "data_" : "tensor_") +
                                  std::to_string(ranks.num_ranks) + (ranks.ranks_per_node == 0 ? "" : nodes);
                         });

}  // namespace
}  // namespace moelink::engine

// The endpoint over real sockets: what clients get, whatever others do.
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <thread>

#include "engine/completions.hpp"
#include "engine/raw_client.hpp"
#include "engine/serving.hpp"

namespace moelink::engine {
namespace {

using testing::cases;
using testing::Client;
using testing::endless;
using testing::expect_greedy;
using testing::Expected;
using testing::greedy;
using testing::Json;
using testing::RawClient;
using testing::Seen;
using testing::serve_options;
using testing::TestServer;
using testing::tokenizer;

TEST(Serve, APromptIsContinuedByTheReferencesTokens) {
  const TestServer server(serve_options());
  Client client(server);
  for (const Expected& expected : cases()) {
    const Seen seen = client.complete(greedy(expected));
    expect_greedy(seen, expected);
    EXPECT_EQ(seen.usage["prompt_tokens"], expected.prompt.size());
    EXPECT_EQ(seen.usage["completion_tokens"], expected.greedy.size());
    EXPECT_EQ(seen.usage["total_tokens"], expected.prompt.size() + expected.greedy.size());
  }
}

TEST(Serve, ATextAndItsTokensAreTheSamePrompt) {
  const TestServer server(serve_options());
  Client client(server);
  const std::string words = "The dispatch kernel";
  Json as_tokens = greedy(cases()[0]);
  as_tokens["prompt"] = tokenizer().encode(words);
  Json as_text = as_tokens;
  as_text["prompt"] = words;
  EXPECT_EQ(client.complete(as_text).text, client.complete(as_tokens).text);
}

struct Ranks {
  Parallelism parallelism;
  int num_ranks;
};
class ServeRanks : public ::testing::TestWithParam<Ranks> {};

TEST_P(ServeRanks, StreamsTogetherGiveWhatEachGivesAlone) {
  const TestServer server(serve_options(GetParam().parallelism), GetParam().num_ranks);
  std::vector<Seen> seen(3);
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    clients.emplace_back([&, i] { seen[i] = Client(server).stream(greedy(cases()[i], true)); });
  }
  for (std::thread& client : clients) client.join();
  for (std::size_t i = 0; i < seen.size(); ++i) {
    expect_greedy(seen[i], cases()[i]);
    EXPECT_TRUE(seen[i].done);
    EXPECT_GT(seen[i].num_events, 5) << "the text came at once";
  }
  Client client(server);
  client.wait_for("moelink_requests_finished_total{reason=\"length\"}", 3);
  client.wait_for("moelink_cache_pages_used", 0);
  EXPECT_EQ(client.metric("moelink_generated_tokens_total"), 3 * 24);
}

TEST_P(ServeRanks, AClientThatHangsUpMidStreamIsForgottenAndHarmsNobody) {
  const TestServer server(serve_options(GetParam().parallelism), GetParam().num_ranks);
  Seen other;
  std::atomic<bool> begun = false;
  std::thread leaves([&] {
    Client(server).stream(endless(), [&](const Seen& seen) {
      begun = true;
      return seen.num_events < 3;
    });
  });
  while (!begun) std::this_thread::yield();
  other = Client(server).stream(greedy(cases()[1], true));
  leaves.join();
  expect_greedy(other, cases()[1]);
  Client client(server);
  client.wait_for("moelink_requests_finished_total{reason=\"cancelled\"}", 1);
  client.wait_for("moelink_cache_pages_used", 0);
  EXPECT_LT(client.metric("moelink_generated_tokens_total"), 2000);
  expect_greedy(client.complete(greedy(cases()[2])), cases()[2]);
}

INSTANTIATE_TEST_SUITE_P(Parallel, ServeRanks,
                         ::testing::Values(Ranks{Parallelism::data, 1}, Ranks{Parallelism::data, 3},
                                           Ranks{Parallelism::tensor, 2}),
                         [](const auto& param) {
                           return (param.param.parallelism == Parallelism::data ? "data_" : "tensor_") +
                                  std::to_string(param.param.num_ranks);
                         });

TEST(Serve, AClientThatHangsUpBeforeItsWholeAnswerIsForgotten) {
  const TestServer server(serve_options());
  Client client(server);
  {
    const RawClient leaves(server.port());
    leaves.post(endless(false).dump());
    client.wait_for("moelink_requests_running", 1);
  }
  client.wait_for("moelink_requests_finished_total{reason=\"cancelled\"}", 1);
  client.wait_for("moelink_requests_running", 0);
  expect_greedy(client.complete(greedy(cases()[0])), cases()[0]);
}

TEST(Serve, ASeedGivesTheSameTextAgainAndAnotherSeedAnother) {
  const TestServer server(serve_options());
  Client client(server);
  Json body = {{"prompt", "The dispatch kernel"},
               {"max_tokens", 20},
               {"temperature", 1.5},
               {"top_p", 0.95},
               {"top_k", 50},
               {"seed", 7},
               {"ignore_eos", true}};
  const Seen first = client.complete(body);
  EXPECT_EQ(client.complete(body).text, first.text);
  body["seed"] = 8;
  EXPECT_NE(client.complete(body).text, first.text);
  body.erase("seed");
  EXPECT_NE(client.complete(body).text, client.complete(body).text);
}

TEST(Serve, AStopTextEndsTheTextInFrontOfItAlsoInsideOfTokens) {
  const TestServer server(serve_options());
  Client client(server);
  const std::string whole = tokenizer().decode(cases()[0].greedy);
  const std::string stop = whole.substr(9, 7);  // begins and ends within tokens
  Json body = greedy(cases()[0]);
  body["stop"] = Json::array({"nowhere to be found", stop});
  const std::string before = whole.substr(0, whole.find(stop));
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const Seen seen = stream ? client.stream(body) : client.complete(body);
    EXPECT_EQ(seen.text, before);
    EXPECT_EQ(seen.finish_reason, "stop");
  }
  client.wait_for("moelink_requests_finished_total{reason=\"stop\"}", 2);
}

TEST(Serve, UsageComesAsTheLastEventIfItIsWanted) {
  const TestServer server(serve_options());
  Json body = greedy(cases()[0], true);
  body["stream_options"] = {{"include_usage", true}};
  const Seen seen = Client(server).stream(body);
  EXPECT_EQ(seen.usage["completion_tokens"], cases()[0].greedy.size());
  EXPECT_TRUE(seen.done);
}

TEST(Serve, MoreRequestsThanMayWaitAreTurnedAwayAndTheOthersAnswered) {
  ServeOptions options = serve_options();
  options.engine.model.limits.max_sequences = 1;
  options.max_waiting = 1;
  const TestServer server(options);
  Client client(server);
  std::atomic<bool> leave = false;
  std::thread runs([&] { Client(server).stream(endless(), [&](const Seen&) { return !leave; }); });
  client.wait_for("moelink_requests_running", 1);
  Seen waited;
  std::thread waits([&] { waited = Client(server).complete(greedy(cases()[0])); });
  client.wait_for("moelink_requests_waiting", 1);
  const httplib::Result refused = client.post(greedy(cases()[1]).dump());
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
  EXPECT_EQ(Json::parse(refused->body)["error"]["type"], "rate_limit_error");
  EXPECT_EQ(client.metric("moelink_requests_refused_total"), 1);
  EXPECT_EQ(client.post("no JSON")->status, 429) << "the body was looked at first";
  leave = true;
  runs.join();
  waits.join();
  expect_greedy(waited, cases()[0]);
  expect_greedy(client.complete(greedy(cases()[1])), cases()[1]);
}

TEST(Serve, ModelsHealthAndUnknownPathsAreAnswered) {
  const TestServer server(serve_options());
  Client client(server);
  EXPECT_EQ(client.get("/health")->status, 200);
  EXPECT_EQ(Json::parse(client.get("/v1/models")->body)["data"][0]["id"], testing::kServedModel);
  EXPECT_EQ(client.get(std::string("/v1/models/") + testing::kServedModel)->status, 200);
  for (const char* path : {"/v1/models/gpt-2", "/v1/completions", "/nowhere"}) {
    const httplib::Result result = client.get(path);
    EXPECT_EQ(result->status, 404) << path;
    EXPECT_TRUE(Json::parse(result->body).contains("error")) << path;
  }
}

TEST(Serve, MetricsCountWhatHappened) {
  const TestServer server(serve_options(), 2);
  Client client(server);
  for (int i = 0; i < 2; ++i) expect_greedy(client.complete(greedy(cases()[0])), cases()[0]);
  client.wait_for("moelink_requests_running", 0);
  EXPECT_EQ(client.metric("moelink_requests_finished_total{reason=\"length\"}"), 2);
  EXPECT_EQ(client.metric("moelink_prompt_tokens_total"), 2.0 * static_cast<double>(cases()[0].prompt.size()));
  EXPECT_EQ(client.metric("moelink_generated_tokens_total"), 48);
  EXPECT_EQ(client.metric("moelink_time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(client.metric("moelink_time_to_first_token_seconds_bucket{le=\"+Inf\"}"), 2);
  EXPECT_EQ(client.metric("moelink_time_per_token_seconds_count"), 46);
  EXPECT_GT(client.metric("moelink_time_per_token_seconds_sum"), 0);
  EXPECT_EQ(client.metric("moelink_cache_pages"), 1024);
  EXPECT_GE(client.metric("moelink_steps_total"), 48);
  EXPECT_GT(client.metric("moelink_dispatch_time_ratio"), 0);
  EXPECT_LT(client.metric("moelink_dispatch_time_ratio") + client.metric("moelink_combine_time_ratio"), 1);
}

}  // namespace
}  // namespace moelink::engine

// The endpoint over real sockets: what clients get, whatever others do, and whatever they send.
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <thread>

#include "comm/expect_error.hpp"
#include "engine/completion_client.hpp"
#include "engine/generation.hpp"
#include "engine/raw_client.hpp"
#include "engine/serving.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace moelink::engine {
namespace {

using moelink::testing::expect_error;
using testing::Client;
using testing::Expected;
using testing::Json;
using testing::RawClient;
using testing::Seen;
using testing::serve_options;
using testing::TestServer;

const Tokenizer& tokenizer() {
  static const Tokenizer the(testing::data_folder(testing::kServedModel) / "tokenizer.json");
  return the;
}

const std::vector<Expected>& cases() {
  static const std::vector<Expected> all = [] {
    std::vector<Expected> found = testing::expected_of(testing::kServedModel);
    std::erase_if(found, [](const Expected& c) { return c.prompt.size() > 40; });
    return found;
  }();
  return all;
}

Json greedy(const Expected& expected, bool stream = false) {
  return {{"prompt", expected.prompt},
          {"max_tokens", expected.greedy.size()},
          {"temperature", 0},
          {"ignore_eos", true},
          {"stream", stream}};
}
/// Generates for long, unless somebody ends it.
Json endless(bool stream = true) {
  return {{"prompt", "The dispatch kernel"},
          {"max_tokens", 4000},
          {"temperature", 0},
          {"ignore_eos", true},
          {"stream", stream}};
}

void expect_greedy(const Seen& seen, const Expected& expected) {
  EXPECT_EQ(seen.status, 200) << seen.error;
  EXPECT_EQ(seen.text, tokenizer().decode(expected.greedy));
  EXPECT_EQ(seen.finish_reason, "length");
}

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

TEST(Serve, WhatCannotBeAnsweredIsRefusedByNameAndHarmsNobody) {
  const TestServer server(serve_options());
  Client client(server);
  const auto refused = [&](int status, const std::string& body, const std::string& param, const std::string& words) {
    const httplib::Result result = client.post(body);
    ASSERT_TRUE(result) << body;
    EXPECT_EQ(result->status, status) << body;
    EXPECT_EQ(result->get_header_value("Content-Type"), "application/json");
    const Json error = Json::parse(result->body)["error"];
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error["param"], param.empty() ? Json(nullptr) : Json(param)) << body;
    EXPECT_NE(error["message"].get<std::string>().find(words), std::string::npos) << error["message"];
    EXPECT_EQ(error["message"].get<std::string>().find(".cpp"), std::string::npos) << error["message"];
  };
  const auto bad_field = [&](const std::string& field, const std::string& value, const std::string& words) {
    refused(400, R"({"prompt": "a", ")" + field + "\": " + value + "}", field, words);
  };
  refused(400, "", "", "");
  refused(400, "{\"prompt\": ", "", "");
  refused(400, "[1]", "", "expected an object");
  refused(400, R"({"prompt": "a", "prompt": "b"})", "", "prompt");
  refused(400, "{\"prompt\": \"\xff\"}", "", "");
  const std::string brackets = std::string(5000, '[') + std::string(5000, ']');
  refused(400, R"({"prompt": "a", "temperature": )" + brackets + "}", "", "64 deep");
  refused(400, "{}", "prompt", "is missing");
  refused(400, R"({"prompt": 5})", "prompt", "expected a text");
  refused(400, R"({"prompt": [1, -1]})", "prompt", "-1");
  refused(400, R"({"prompt": [1, 2.5]})", "prompt", "2.5");
  refused(400, R"({"prompt": ["a", "b"]})", "prompt", "several prompts");
  refused(400, R"({"prompt": ""})", "", "empty");
  refused(400, R"({"prompt": [1, 1000000]})", "", "token 1000000");
  refused(404, R"({"prompt": "a", "model": "gpt-2"})", "model", "\"gpt-2\" does not exist");
  refused(404, R"({"prompt": "a", "model": 3})", "model", "does not exist");
  bad_field("max_tokens", "0", "at least 1");
  bad_field("max_tokens", "1.5", "integer");
  bad_field("max_tokens", "\"9\"", "integer");
  bad_field("max_tokens", "18446744073709551615", "integer");
  bad_field("temperature", "-0.5", "-0.5");
  bad_field("temperature", "1e9", "1e+09");
  bad_field("temperature", "\"hot\"", "expected a number");
  bad_field("top_p", "0", "top_p is 0");
  bad_field("top_p", "1.01", "1.01");
  bad_field("top_k", "-2", "-2");
  bad_field("seed", "true", "integer");
  bad_field("stream", "1", "true or false");
  bad_field("stop", "[\"\"]", "empty");
  bad_field("stop", R"(["a", "b", "c", "d", "e"])", "at most 4");
  bad_field("stop", "7", "text");
  bad_field("stream_options", R"({"include_usage": true})", "stream");
  bad_field("n", "2", "not implemented");
  bad_field("logprobs", "3", "not known");
  bad_field("temprature", "1", "not known");
  expect_greedy(client.complete(greedy(cases()[0])), cases()[0]);
}

TEST(Serve, APromptThatIsLongerThanTheCacheIsRefused) {
  const TestServer server(serve_options());
  Client client(server);
  const httplib::Result result = client.post(Json{{"prompt", std::vector<int>(4096, 5)}, {"max_tokens", 100}}.dump());
  EXPECT_EQ(result->status, 400);
  const Json error = Json::parse(result->body)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_NE(error["message"].get<std::string>().find("4096 tokens and 100"), std::string::npos) << error;
}

TEST(Serve, ABodyThatIsTooLongIsRefusedAndTheConnectionStillServes) {
  const TestServer server(serve_options());
  Client client(server);
  EXPECT_EQ(client.post(std::string(20'001, ' '))->status, 413);
  expect_greedy(client.complete(greedy(cases()[0])), cases()[0]);
  // Nothing is waited for that is announced and too long.
  const RawClient large(server.port());
  large.send("POST /v1/completions HTTP/1.1\r\nHost: here\r\nContent-Length: 20000000000000\r\n\r\n{");
  const std::string refused = large.read_until("nothing more");
  EXPECT_NE(refused.find(" 413 "), std::string::npos) << refused;
  EXPECT_NE(refused.find("20000000000000 bytes; at most 20000"), std::string::npos) << refused;
  // In pieces of unannounced total length.
  const RawClient raw(server.port());
  raw.send("POST /v1/completions HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 30; ++i) raw.send("3e8\r\n" + std::string(1000, ' ') + "\r\n");
  raw.send("0\r\n\r\n");
  EXPECT_NE(raw.read_until("20000 bytes").find(" 413 "), std::string::npos);
  raw.post(greedy(cases()[0]).dump());
  EXPECT_NE(raw.read_until("total_tokens").find(" 200 "), std::string::npos);
}

TEST(Serve, ABodyWhoseLengthIsNotCertainIsRefusedUnread) {
  const TestServer server(serve_options());
  const auto expect_refused = [&](const std::string& head, const std::string& status, const std::string& words) {
    const RawClient client(server.port());
    client.send(head + "\r\n\r\n{}");
    const std::string seen = client.read_until("no such words: until the connection ends");
    EXPECT_NE(seen.find(" " + status + " "), std::string::npos) << head << '\n' << seen;
    EXPECT_NE(seen.find(words), std::string::npos) << head << '\n' << seen;
    EXPECT_NE(seen.find("invalid_request_error"), std::string::npos) << head << '\n' << seen;
  };
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: here\r\n";
  expect_refused(post + "Accept: */*", "411", "no Content-Length");
  expect_refused(post + "Content-Length: -5", "400", "Content-Length is -5");
  expect_refused(post + "Content-Length: 2x", "400", "Content-Length is 2x");
  expect_refused(post + "Content-Length: 99999999999999999999999", "413", "at most 20000 bytes");
  expect_refused(post + "Content-Length: 2\r\nContent-Length: 3", "400", "several");
  expect_refused(post + "Content-Length: 2\r\nTransfer-Encoding: chunked", "400", "send one of them");
  expect_refused(post + "Transfer-Encoding: gzip", "400", "Transfer-Encoding is gzip");
  expect_refused(post + "Content-Length: 2\r\nContent-Encoding: gzip", "415", "Content-Encoding is gzip");
  expect_refused("POST /v1/other HTTP/1.1\r\nHost: here\r\nContent-Length: 2", "404", "takes no body");
  expect_refused("GET /health HTTP/1.1\r\nHost: here\r\nContent-Length: 2", "400", "takes no body");
  expect_greedy(Client(server).complete(greedy(cases()[0])), cases()[0]);
}

TEST(Serve, ABodyThatDripsHoldsAConnectionForALimitedTime) {
  ServeOptions options = serve_options();
  options.http.slowest_body = std::chrono::milliseconds(300);
  const TestServer server(options);
  const RawClient client(server.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: here\r\nContent-Length: 20000\r\n\r\n");
  const auto begun = std::chrono::steady_clock::now();
  std::thread drips([&] {
    for (int i = 0; i < 400 && client.try_send(" "); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  const std::string seen = client.read_until("no such words: until the connection ends");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(15));
  EXPECT_NE(seen.find(" 408 "), std::string::npos) << seen;
  EXPECT_NE(seen.find("within 300 ms"), std::string::npos) << seen;
  drips.join();
}

TEST(Serve, AFormIsNotTakenForJson) {
  const TestServer server(serve_options());
  httplib::Client http("127.0.0.1", server.port());
  const httplib::MultipartFormDataItems items = {{"prompt", "a", "", ""}};
  EXPECT_EQ(http.Post("/v1/completions", items)->status, 415);
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

TEST(Serve, AShutdownLetsRequestsEndAndTakesNoMore) {
  TestServer server(serve_options(), 2);
  Client client(server);
  std::atomic<bool> begun = false;
  Seen seen;
  Json body = greedy(cases()[0], true);
  body["max_tokens"] = 300;
  std::thread streams([&] {
    seen = Client(server).stream(body, [&](const Seen&) {
      begun = true;
      return true;
    });
  });
  while (!begun) std::this_thread::yield();
  server.shutdown().request();
  // Asked until it is told: the request does not reach the desk at once.
  httplib::Result late = client.get("/health");
  while (late && late->status == 200) late = client.get("/health");
  EXPECT_TRUE(!late || late->status == 503);
  streams.join();
  server.join();
  EXPECT_TRUE(seen.done);
  EXPECT_EQ(seen.finish_reason, "length");
  EXPECT_EQ(seen.error, "");
}

TEST(Serve, ClientsThatNeverEndTheirRequestDoNotKeepTheServerFromEnding) {
  TestServer server(serve_options());
  std::latch begun(3);
  const auto drip = [&](const std::string& head) {
    const RawClient client(server.port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: here\r\n" + head);
    begun.arrive_and_wait();
    // Not for ever, so that a server that waits for it fails instead of hanging.
    constexpr int kMostBytes = 600;
    for (int i = 0; i < kMostBytes && client.try_send(" "); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  };
  std::thread in_body([&] { drip("Content-Length: 20000\r\n\r\n"); });
  std::thread in_head([&] { drip("User-Agent: "); });
  begun.arrive_and_wait();
  expect_greedy(Client(server).complete(greedy(cases()[0])), cases()[0]);
  const auto asked = std::chrono::steady_clock::now();
  server.shutdown().request();
  server.join();
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(15));
  in_body.join();
  in_head.join();
}

TEST(Serve, AfterTheGraceThoseWhoWaitAreToldWhy) {
  ServeOptions options = serve_options();
  options.grace = std::chrono::milliseconds(100);
  TestServer server(options, 2);
  Seen seen;
  Seen whole;
  std::thread streams([&] { seen = Client(server).stream(endless()); });
  std::thread waits([&] { whole = Client(server).complete(endless(false)); });
  Client(server).wait_for("moelink_requests_running", 2);
  server.shutdown().request();
  streams.join();
  waits.join();
  server.join();
  EXPECT_EQ(seen.error, "the server is shutting down");
  EXPECT_TRUE(seen.done);
  EXPECT_EQ(whole.status, 503);
  EXPECT_EQ(whole.error, "the server is shutting down");
}

TEST(Serve, ARankThatIsLostEndsTheServerAndEveryRequestWithAnError) {
  TestServer server(serve_options(), 3);
  Seen seen;
  Seen whole;
  std::thread streams([&] { seen = Client(server).stream(endless()); });
  std::thread waits([&] { whole = Client(server).complete(endless(false)); });
  Client(server).wait_for("moelink_requests_running", 2);
  server.rank(2).abort("rank 2 is no more");
  streams.join();
  waits.join();
  expect_error(ErrorCode::aborted, {"rank 2 is no more"}, [&] { server.join(); });
  EXPECT_NE(seen.error.find("rank 2 is no more"), std::string::npos) << seen.error;
  EXPECT_EQ(whole.status, 500);
  EXPECT_NE(whole.error.find("rank 2 is no more"), std::string::npos) << whole.error;
}

TEST(Serve, ARankThatIsLostWhileNothingIsAskedEndsTheServer) {
  TestServer server(serve_options(), 2);
  server.rank(1).abort("rank 1 is no more");
  expect_error(ErrorCode::aborted, {"rank 1 is no more"}, [&] { server.join(); });
}

/// The socket that this process listens with at `port`; -1: none.
int listening_socket(int port) {
  constexpr int kMostSockets = 4096;
  for (int fd = 0; fd < kMostSockets; ++fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 && ntohs(address.sin_port) == port) {
      return fd;
    }
  }
  return -1;
}

TEST(Serve, AnEndpointThatCannotAcceptAnyMoreEndsTheServerWithAnError) {
  TestServer server(serve_options());
  const int socket = listening_socket(server.port());
  ASSERT_GE(socket, 0);
  ASSERT_EQ(::shutdown(socket, SHUT_RDWR), 0);
  expect_error(ErrorCode::system, {"accepts no connections"}, [&] { server.join(); });
}

TEST(Serve, ANameThatCannotStandInAnAnswerIsRefused) {
  ServeOptions options = serve_options();
  options.model_name = "caf\xe9";
  Shutdown shutdown;
  expect_error(ErrorCode::invalid_argument, {"UTF-8"},
               [&] { serve(Communicator::single(Device::host()), options, shutdown, [](int) {}); });
}

TEST(Serve, APortThatIsTakenIsAnErrorBeforeAModelIsLoaded) {
  const TestServer server(serve_options());
  ServeOptions options = serve_options();
  options.folder = "/nonesuch";
  options.http.port = server.port();
  Shutdown shutdown;
  expect_error(ErrorCode::system, {std::to_string(server.port()), "--port"},
               [&] { serve(Communicator::single(Device::host()), options, shutdown, [](int) {}); });
}

}  // namespace
}  // namespace moelink::engine

// What is sent to the endpoint and cannot be answered: refused by name, and the rest of it never taken for a request.
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <string>
#include <thread>

#include "engine/completions.hpp"
#include "engine/raw_client.hpp"
#include "engine/serving.hpp"

namespace moelink::engine {
namespace {

using testing::cases;
using testing::Client;
using testing::expect_greedy;
using testing::greedy;
using testing::Json;
using testing::RawClient;
using testing::serve_options;
using testing::TestServer;

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
  // curl -d says so of whatever it sends.
  const std::string body = greedy(cases()[0]).dump();
  EXPECT_EQ(http.Post("/v1/completions", body, "application/x-www-form-urlencoded")->status, 200);
}

TEST(Serve, WhatIsLeftOfARefusedBodyIsNotTakenForTheNextRequest) {
  const TestServer server(serve_options());
  const std::string hidden = "GET /health HTTP/1.1\r\nHost: here\r\n\r\n";
  const auto expect_one_answer = [&](const std::string& head, const std::string& body, const std::string& status) {
    const RawClient client(server.port());
    client.send(head + "\r\nHost: here\r\n" + body);
    std::string seen = client.read_until("}");
    (void)client.try_send(hidden);  // apart: what came with the head would not show it
    seen += client.read_until("no such words: until the connection ends");
    EXPECT_EQ(seen.rfind("HTTP/1.1 " + status + " ", 0), 0U) << head << body << seen;
    EXPECT_EQ(seen.find("HTTP/1.1", 1), std::string::npos) << head << body << seen;
  };
  const std::string post = "POST /v1/completions HTTP/1.1";
  const std::string with_length = "Content-Length: " + std::to_string(hidden.size()) + "\r\n\r\n";
  expect_one_answer(post, "Content-Type: multipart/form-data\r\n" + with_length, "415");
  expect_one_answer(post, "Content-Type: multipart/form-data; boundary=b\r\n" + with_length, "415");
  expect_one_answer(post, "Content-Type: Multipart/Mixed\r\n" + with_length, "415");
  const std::string in_chunks = "Transfer-Encoding: chunked\r\n\r\n";
  expect_one_answer(post, in_chunks + "no number\r\n", "400");
  std::string too_long;
  for (int i = 0; i < 21; ++i) too_long += "3e8\r\n" + std::string(1000, ' ') + "\r\n";
  expect_one_answer(post, in_chunks + too_long + "no number\r\n", "400");
  for (const char* method : {"PUT", "PATCH", "DELETE", "OPTIONS"}) {
    expect_one_answer(std::string(method) + " /v1/completions HTTP/1.1", with_length, "404");
  }
  expect_one_answer("GET /v1/completions HTTP/1.1", with_length, "400");
  // Without a length everything would be body, until the connection ends.
  for (const char* method : {"PUT", "PATCH", "DELETE"}) {
    expect_one_answer(std::string(method) + " /v1/completions HTTP/1.1", "\r\n", "404");
  }
  expect_one_answer("POST /v1/other HTTP/1.1", "\r\n", "404");
  const RawClient client(server.port());
  client.send("HEAD /health HTTP/1.1\r\nHost: here\r\n" + with_length);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  (void)client.try_send(hidden);
  EXPECT_EQ(client.read_until("no such words: until the connection ends"), "");
}

}  // namespace
}  // namespace moelink::engine

// A well-behaved client of an endpoint under test, by httplib: asks for completions, whole or streamed, and reads
// /metrics.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "engine/serving.hpp"

namespace moelink::engine::testing {

using Json = nlohmann::json;

/// What a client saw of one request.
struct Seen {
  int status = 0;
  std::string text;
  std::string finish_reason;
  std::string error;
  Json usage;
  bool done = false;  ///< the stream ended as it should
  int num_events = 0;
};

class Client {
 public:
  explicit Client(const TestServer& server) : http_("127.0.0.1", server.port()) {
    http_.set_keep_alive(true);
    http_.set_read_timeout(30);
  }

  httplib::Result post(const std::string& body) { return http_.Post("/v1/completions", body, "application/json"); }

  Seen complete(const Json& body) {
    const httplib::Result result = post(body.dump());
    Seen seen;
    if (!result) {
      ADD_FAILURE() << httplib::to_string(result.error());
      return seen;
    }
    seen.status = result->status;
    take(Json::parse(result->body), seen);
    return seen;
  }

  /// `more(seen)` after each event; false: the client hangs up.
  Seen stream(
      const Json& body, const std::function<bool(const Seen&)>& more = [](const Seen&) { return true; }) {
    Seen seen;
    std::string rest;
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.set_header("Content-Type", "application/json");
    request.body = body.dump();
    request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
      rest.append(data, size);
      for (std::size_t end = rest.find("\n\n"); end != std::string::npos; end = rest.find("\n\n")) {
        EXPECT_EQ(rest.substr(0, 6), "data: ");
        const std::string event = rest.substr(6, end - 6);
        rest.erase(0, end + 2);
        ++seen.num_events;
        EXPECT_FALSE(seen.done) << "an event behind the last: " << event;
        seen.done = event == "[DONE]";
        if (!seen.done) take(Json::parse(event), seen);
        if (!more(seen)) return false;
      }
      return true;
    };
    if (const httplib::Result result = http_.send(request)) seen.status = result->status;
    return seen;
  }

  httplib::Result get(const std::string& path) { return http_.Get(path); }

  /// The value of a line of /metrics.
  double metric(const std::string& name) {
    const std::string page = "\n" + http_.Get("/metrics")->body;
    const std::size_t at = page.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1 : std::stod(page.substr(at + name.size() + 2));
  }
  void wait_for(const std::string& name, double value) {
    for (int i = 0; i < 2000 && metric(name) != value; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(metric(name), value) << name;
  }

 private:
  static void take(const Json& body, Seen& seen) {
    if (body.contains("error")) {
      seen.error = body["error"]["message"];
      return;
    }
    EXPECT_EQ(body["object"], "text_completion");
    EXPECT_EQ(body["model"], testing::kServedModel);
    if (body.contains("usage") && !body["usage"].is_null()) seen.usage = body["usage"];
    for (const Json& choice : body["choices"]) {
      seen.text += choice["text"];
      if (!choice["finish_reason"].is_null()) seen.finish_reason = choice["finish_reason"];
    }
  }

  httplib::Client http_;
};

}  // namespace moelink::engine::testing

// The endpoint: HTTP in front of a desk.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/desk/desk.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace moelink::engine {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  ///< 0: one that is free
  std::size_t max_body_bytes = std::size_t{8} << 20;
  std::chrono::milliseconds slowest_body{30'000};  ///< from its first byte to its last
  std::size_t max_connections = 512;               ///< each has a thread; more wait
};

/// POST /v1/completions, GET /v1/models, /health and /metrics. What goes wrong is answered in OpenAI's form with the
/// status that fits: 400, 404, 408, 411, 413, 415, 429 (too many wait), 500, 503 (the server is ending).
class HttpServer {
 public:
  /// Takes the port: clients may connect, and are answered from start() on. Throws ErrorCode::system if that cannot be.
  explicit HttpServer(const HttpOptions& options);
  /// stop().
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] int port() const noexcept;

  /// All must live until stop().
  void start(Desk& desk, const Tokenizer& tokenizer, const std::string& model_name);
  /// Ends streams that are under way, and returns when nobody is answered any more.
  void stop();
  /// Whether it accepts no connections any more though nobody has stopped it: the system had no room, or took the
  /// socket.
  [[nodiscard]] bool has_failed() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink::engine

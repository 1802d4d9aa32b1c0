// What moelink-serve is asked for.
#pragma once

#include <cstdint>
#include <string>

#include "engine/frontend/engine_flags.hpp"
#include "engine/serve/server.hpp"

namespace moelink::engine {

/// The command line.
struct ServeFlags {
  EngineFlags engine;
  std::string model_name;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::int64_t max_waiting = 256;
  std::int64_t max_body_bytes = std::int64_t{8} << 20;
  std::int64_t max_connections = 512;
  double grace_s = 10;

  void add_to(CLI::App& app);
  /// Throws UsageError, naming the flag.
  [[nodiscard]] ServeOptions options() const;
};

}  // namespace moelink::engine

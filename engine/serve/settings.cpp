#include "engine/serve/settings.hpp"

#include <CLI/CLI.hpp>

namespace moelink::engine {

void ServeFlags::add_to(CLI::App& app) {
  engine.add_to(app);
  const auto option = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str()->group("Endpoint");
  };
  option("--host", host, "address to listen at; 0.0.0.0: all of this machine");
  option("--port", port, "0: one that is free")->check(CLI::Range(0, 65535));
  option("--name", model_name, "what clients call the model; empty: its folder's name");
  option("--max-waiting", max_waiting, "requests that are taken beyond those that can run; others are told 429")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20));
  option("--max-body-bytes", max_body_bytes, "longest body of a request")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32));
  option("--max-connections", max_connections, "clients that are connected at the same time; others wait")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 16));
  option("--grace", grace_s, "seconds that requests may take to end after SIGTERM or SIGINT; a second signal ends them")
      ->check(CLI::Range(0.0, 86400.0));
}

ServeOptions ServeFlags::options() const {
  return {.folder = engine.model,
          .model_name = model_name,
          .engine = {.model = engine.model_options()},
          .http = {.host = host,
                   .port = port,
                   .max_body_bytes = static_cast<std::size_t>(max_body_bytes),
                   .max_connections = static_cast<std::size_t>(max_connections)},
          .max_waiting = max_waiting,
          .grace = std::chrono::milliseconds(static_cast<std::int64_t>(grace_s * 1000))};
}

}  // namespace moelink::engine

// A server as a whole: every rank's engine, and on rank 0 the endpoint.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>

#include "engine/requests/engine.hpp"
#include "engine/serve/http_server.hpp"
#include "moelink/communicator.hpp"

namespace moelink::engine {

struct ServeOptions {
  std::filesystem::path folder;
  std::string model_name = {};  ///< empty: the folder's
  EngineOptions engine = {};
  HttpOptions http = {};
  std::int64_t max_waiting = 256;           ///< requests that are taken beyond those that can run
  std::chrono::milliseconds grace{10'000};  ///< for requests that are under way when the server is to end
};

/// Asks a server to end: from any thread.
class Shutdown {
 public:
  /// The first time: it takes no more requests, and ends when all have ended, or the grace is over. Again: at once.
  void request();
  /// Waits until it was asked so many times; false if that takes longer.
  [[nodiscard]] bool wait(int times, std::chrono::milliseconds longest);

 private:
  std::mutex mutex_;
  std::condition_variable requested_;
  int times_ = 0;
};

/// Serves until `shutdown` is requested on rank 0. Collective. `ready`: called on rank 0 with the port, when requests
/// are answered. Throws the failure of a rank or the device; those who wait for an answer have been told by then.
void serve(const Communicator& communicator, const ServeOptions& options, Shutdown& shutdown,
           const std::function<void(int port)>& ready);

}  // namespace moelink::engine

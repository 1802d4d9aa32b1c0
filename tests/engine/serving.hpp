// A server in a test: on ranks of this process, at a port of its own, with the tiny model.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "engine/model_folder.hpp"
#include "engine/serve/server.hpp"

namespace moelink::engine::testing {

inline constexpr const char* kServedModel = "tiny-qwen3-moe";

inline ServeOptions serve_options(Parallelism parallelism = Parallelism::data) {
  return {.folder = data_folder(kServedModel),
          .engine = {.model = {.parallelism = parallelism,
                               .limits = {.max_rows = 64, .num_pages = 512, .page_size = 8},
                               .time_exchange = true},
                     .num_threads = 1},
          .http = {.port = 0, .max_body_bytes = 20'000}};
}

class TestServer {
 public:
  explicit TestServer(const ServeOptions& options, int num_ranks = 1)
      : ranks_(Communicator::in_process(num_ranks, {.deadline = std::chrono::seconds(20)})) {
    std::promise<int> port;
    std::future<int> known = port.get_future();
    thread_ = std::thread([this, options, port = std::move(port)]() mutable {
      try {
        on_every_rank(ranks_, [&](const Communicator& communicator) {
          serve(communicator, options, shutdown_, [&](int number) { port.set_value(number); });
        });
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
    port_ = known.get();
  }
  ~TestServer() {
    if (thread_.joinable()) {
      shutdown_.request();
      shutdown_.request();
      thread_.join();
    }
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] Shutdown& shutdown() noexcept { return shutdown_; }
  /// A rank of the group, to do harm to it.
  [[nodiscard]] const Communicator& rank(std::size_t rank) const { return ranks_[rank]; }
  /// Waits until it has ended; throws what it threw.
  void join() {
    thread_.join();
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  std::vector<Communicator> ranks_;
  Shutdown shutdown_;
  std::exception_ptr failure_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace moelink::engine::testing

#include "engine/serve/serve.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <thread>

#include "engine/serve/server.hpp"
#include "engine/serve/settings.hpp"
#include "perf/common/tool.hpp"

namespace moelink::engine {
namespace {

/// SIGTERM and SIGINT request a shutdown instead of ending the process. Made before any other thread, so that no thread
/// but this one's gets them. Every process of a group has one: a launcher tells all, and rank 0 acts for all.
class Signals {
 public:
  explicit Signals(Shutdown& shutdown) {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    thread_ = std::thread([this, &shutdown] {
      while (!ended_) {
        const timespec longest{.tv_sec = 0, .tv_nsec = 50'000'000};
        if (sigtimedwait(&set_, nullptr, &longest) > 0) {
          shutdown.request();
        }
      }
    });
  }
  ~Signals() {
    ended_ = true;
    thread_.join();
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  sigset_t set_{};
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

int run(const ServeFlags& flags) {
  Shutdown shutdown;
  const Signals signals(shutdown);
  const ServeOptions options = flags.options();  // may start the driver, which has threads of its own
  perf::run_on_ranks(flags.engine.ranks, flags.engine.place, [&](const Communicator& communicator) {
    flags.engine.require(communicator.size());
    ServeOptions mine = options;
    mine.engine.num_threads = perf::threads_of_rank(communicator, flags.engine.place);
    mine.engine.model.progress = LoadingProgress(communicator.rank() == 0);
    const auto start = std::chrono::steady_clock::now();
    serve(communicator, mine, shutdown, [&](int port) {
      const double load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      fmt::print(stderr, "moelink-serve: {} on {} rank{}, loaded in {:.1f} s; listening at http://{}:{}\n",
                 flags.engine.model, communicator.size(), communicator.size() == 1 ? "" : "s", load_s, flags.host,
                 port);
    });
  });
  return perf::kExitGood;
}

}  // namespace

int run_serve(int argc, const char* const* argv) {
  CLI::App app("Serves a mixture-of-experts model (Qwen3-MoE, OLMoE or Mixtral) over HTTP, as OpenAI's API does",
               "moelink-serve");
  ServeFlags flags;
  flags.add_to(app);
  return perf::run_tool(app, argc, argv, [&] { return run(flags); });
}

}  // namespace moelink::engine

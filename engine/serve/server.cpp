#include "engine/serve/server.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "engine/base/text.hpp"
#include "engine/desk/worker.hpp"
#include "engine/tokenizer/utf8.hpp"
#include "moelink/error.hpp"

namespace moelink::engine {
namespace {

constexpr std::chrono::milliseconds kLookAround{50};

std::string name_of_model(const ServeOptions& options) {
  std::string name =
      options.model_name.empty() ? std::filesystem::canonical(options.folder).filename().string() : options.model_name;
  if (valid_prefix(name) != name.size()) {  // it stands in every answer, and JSON is UTF-8
    throw Error(ErrorCode::invalid_argument, text("the model's name \"", name, "\" is not UTF-8: give another one"));
  }
  return name;
}

DeskOptions desk_options(const Communicator& communicator, const Engine& engine, const ServeOptions& options) {
  const ModelLimits& limits = engine.model().limits();
  return {.num_ranks = options.engine.model.parallelism == Parallelism::data ? communicator.size() : 1,
          .max_running = std::min(limits.max_sequences, limits.max_logit_rows),
          .max_waiting = options.max_waiting,
          .messages_have_a_bound = communicator.size() > 1};
}

/// Ends a desk when that is asked for, or when nobody can ask it anything any more: a thread beside the one that steps.
class Closer {
 public:
  Closer(Desk& desk, const HttpServer& http, Shutdown& shutdown, std::chrono::milliseconds grace)
      : thread_([this, &desk, &http, &shutdown, grace] { run(desk, http, shutdown, grace); }) {}
  ~Closer() {
    ended_ = true;
    thread_.join();
  }
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

 private:
  void run(Desk& desk, const HttpServer& http, Shutdown& shutdown, std::chrono::milliseconds grace) const {
    while (!shutdown.wait(1, kLookAround) && !http.has_failed()) {
      if (ended_) {
        return;
      }
    }
    desk.close("the server is shutting down");
    const auto end = std::chrono::steady_clock::now() + grace;
    while (!ended_ && !desk.wait_until_empty(kLookAround) && std::chrono::steady_clock::now() < end &&
           !shutdown.wait(2, {})) {
    }
    desk.stop();
  }

  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

void serve_and_answer(const Communicator& communicator, const ServeOptions& options, Shutdown& shutdown,
                      const std::function<void(int port)>& ready) {
  HttpServer http(options.http);  // first of all: a port that is taken is known before a model is loaded
  const std::string name = name_of_model(options);
  const Tokenizer tokenizer(options.folder / "tokenizer.json");
  Engine engine(communicator, options.folder, options.engine);
  Desk desk(engine, desk_options(communicator, engine, options));
  http.start(desk, tokenizer, name);
  // Goes first: those who wait for an answer get it, or the reason why there is none, before connections end.
  struct LastWords {
    HttpServer& http;
    Desk& desk;
    ~LastWords() {
      constexpr std::chrono::seconds kLongest{2};
      (void)desk.wait_until_empty(kLongest);
      http.stop();
    }
  } last_words{.http = http, .desk = desk};
  const Closer closer(desk, http, shutdown, options.grace);
  ready(http.port());
  Worker(communicator, engine, options.engine.model.parallelism, &desk).run();
  if (http.has_failed()) {
    throw Error(ErrorCode::system, text("the endpoint at port ", http.port(),
                                        " accepts no connections any more; see the "
                                        "system's limits of files and memory, and start again"));
  }
}

}  // namespace

void Shutdown::request() {
  {
    const std::lock_guard lock(mutex_);
    ++times_;
  }
  requested_.notify_all();
}

bool Shutdown::wait(int times, std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  return requested_.wait_for(lock, longest, [&] { return times_ >= times; });
}

void serve(const Communicator& communicator, const ServeOptions& options, Shutdown& shutdown,
           const std::function<void(int port)>& ready) {
  if (communicator.rank() == 0) {
    serve_and_answer(communicator, options, shutdown, ready);
    return;
  }
  Engine engine(communicator, options.folder, options.engine);
  Worker(communicator, engine, options.engine.model.parallelism, nullptr).run();
}

}  // namespace moelink::engine

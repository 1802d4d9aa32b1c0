#include "engine/generate/generate.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <list>
#include <span>

#include "engine/generate/printer.hpp"
#include "engine/generate/settings.hpp"
#include "engine/tokenizer/tokenizer.hpp"
#include "moelink/error.hpp"
#include "perf/common/tool.hpp"

namespace moelink::engine {
namespace {

using Clock = std::chrono::steady_clock;

/// What all ranks of this process share.
struct Job {
  const GenerateFlags& flags;
  const GenerateSettings& settings;
  const Tokenizer& tokenizer;
  const std::vector<std::vector<Token>>& prompts;
  TextPrinter& printer;
};

/// Makes text of one request's tokens.
class Listener {
 public:
  Listener(const Job& job, std::size_t prompt, bool prints)
      : job_(job), prompt_(prompt), prints_(prints), decoder_(job.tokenizer) {}

  bool on_token(Token token) {
    if (!prints_) return true;
    return job_.printer.add(held_, job_.flags.show_tokens ? fmt::format("{} ", token) : decoder_.push(token));
  }
  void on_finish(const Finish& finish) {
    if (!prints_) return;
    if (!job_.flags.show_tokens) job_.printer.add(held_, decoder_.finish());
    job_.printer.finish(prompt_, held_, finish);
  }

 private:
  const Job& job_;
  std::size_t prompt_;
  bool prints_;
  StreamDecoder decoder_;
  std::string held_;
};

Totals sum_over_ranks(const Communicator& communicator, const Totals& mine) {
  Totals sum;
  for (const auto& part : communicator.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    Totals other;
    std::memcpy(&other, part.data(), std::min(part.size(), sizeof(other)));
    sum.add(other);
  }
  return sum;
}

/// Hands a request over. One that is refused is said to have failed, and the others go on.
void submit(Engine& engine, Request request) {
  const auto on_finish = request.on_finish;
  try {
    engine.submit(std::move(request));
  } catch (const Error& error) {
    on_finish({.reason = FinishReason::failed, .error = error.what()});
  }
}

/// One rank's part; how many requests failed, over all ranks.
double generate(const Communicator& communicator, const Job& job) {
  job.flags.engine.require(communicator.size());
  const bool first = communicator.rank() == 0;
  const bool shared = job.settings.model.parallelism == Parallelism::tensor;  // every rank has all prompts
  EngineOptions options{.model = job.settings.model,
                        .num_threads = perf::threads_of_rank(communicator, job.flags.engine.place)};
  options.model.progress = LoadingProgress(first);
  const auto start = Clock::now();
  Engine engine(communicator, job.flags.engine.model, options);
  const double load_s = std::chrono::duration<double>(Clock::now() - start).count();

  Totals totals;
  std::list<Listener> listeners;
  for (std::size_t i = 0; i < job.prompts.size(); ++i) {
    const bool mine = static_cast<int>(i % static_cast<std::size_t>(communicator.size())) == communicator.rank();
    if (!mine && !shared) continue;
    const bool counts = !shared || first;
    Listener& listener = listeners.emplace_back(job, i, counts);
    submit(engine, {.prompt = job.prompts[i],
                    .max_tokens = job.flags.max_tokens,
                    .sampling = job.flags.sampling,
                    .ignore_end_tokens = job.flags.ignore_end,
                    .on_token = [&listener](Token token) { return listener.on_token(token); },
                    .on_finish =
                        [&listener, &totals, counts](const Finish& finish) {
                          listener.on_finish(finish);
                          if (counts) totals.add(finish);
                        }});
    if (counts) totals.num_prompt_tokens += static_cast<double>(job.prompts[i].size());
  }
  while (engine.step()) {
  }
  totals.add(engine.stats());
  const Totals all = sum_over_ranks(communicator, totals);
  if (first) {
    fmt::print(stderr, "moelink-generate: {}\n",
               summary_of(all, communicator.size(), load_s, job.settings.model.payload));
  }
  return all.num_failed;
}

int run(const GenerateFlags& flags, std::ostream& out) {
  const GenerateSettings settings(flags);
  const Tokenizer tokenizer(std::filesystem::path(flags.engine.model) / "tokenizer.json");
  std::vector<std::vector<Token>> prompts;
  for (const std::string& prompt : settings.prompts) {
    prompts.push_back(tokenizer.encode(prompt));
  }
  TextPrinter printer(out, prompts.size() > 1);
  const Job job{.flags = flags, .settings = settings, .tokenizer = tokenizer, .prompts = prompts, .printer = printer};
  std::atomic<bool> good = true;
  perf::run_on_ranks(flags.engine.ranks, flags.engine.place, [&](const Communicator& communicator) {
    if (generate(communicator, job) > 0) good = false;
  });
  return good ? perf::kExitGood : perf::kExitWrong;
}

}  // namespace

int run_generate(int argc, const char* const* argv, std::ostream& out) {
  CLI::App app("Continues texts by a mixture-of-experts model: Qwen3-MoE, OLMoE or Mixtral", "moelink-generate");
  GenerateFlags flags;
  flags.add_to(app);
  return perf::run_tool(app, argc, argv, [&] {
    flags.sampling.seed = flags.engine.place.seed;
    return run(flags, out);
  });
}

}  // namespace moelink::engine

#include "perf/engine/engine_perf.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ostream>

#include "perf/common/measure.hpp"
#include "perf/common/table.hpp"
#include "perf/common/tool.hpp"
#include "perf/engine/steps.hpp"

namespace moelink::perf {
namespace {

const std::vector<Column> kColumns = {{"phase", "", 8},    {"rows", "", 7},       {"context", "", 8},
                                      {"step", "us", 10},  {"tokens", "1/s", 10}, {"dispatch", "%", 9},
                                      {"combine", "%", 9}, {"launch", "", 7},     {"#wrong", "", 7}};

/// `batches`: those of all ranks that count, each of `rows`.
std::vector<std::string> cells(const char* phase, std::int64_t rows, std::int64_t context, int batches,
                               const StepResult& result) {
  return {phase,
          std::to_string(rows),
          std::to_string(context),
          time_cell(result.step_us),
          fmt::format("{:.0f}", static_cast<double>(rows * batches) / result.step_us * 1e6),
          percent_cell(result.dispatch_share),
          percent_cell(result.combine_share),
          result.captured ? "graph" : "calls",
          std::to_string(result.num_wrong)};
}

std::string words_of_ranks(const EngineFlags& flags, const Communicator& communicator) {
  const int size = communicator.size();
  if (size == 1) return "one rank";
  const int nodes = communicator.topology().num_nodes();
  return fmt::format(
      "{} ranks on {} node{}, --mode {}, {}", size, nodes, nodes == 1 ? "" : "s", flags.parallel.place.mode,
      flags.parallel.parallel == "data" ? "each with so many rows of its own; tokens: of all ranks together"
                                        : "all with the same rows");
}

void introduce(Table& table, const EngineFlags& flags, const EngineSettings& settings,
               const Communicator& communicator) {
  const engine::ModelConfig& config = settings.config;
  table.comment(fmt::format(
      "{} layers of hidden {}, {} heads ({} kv) of {}, {} experts of {}, top {}; vocabulary {}; {}; payload {}; {}",
      config.num_layers, config.hidden, config.num_heads, config.num_kv_heads, config.head_dim, config.num_experts,
      config.expert_intermediate, config.top_k, config.vocab_size, name_of(settings.model.type),
      name_of(settings.model.payload), communicator.device().name()));
  table.comment(
      fmt::format("{}; step: the slowest rank's, median of {}", words_of_ranks(flags, communicator), settings.samples));
  table.comment("dispatch and combine: their part of a step that is launched call by call, with events between");
  table.header();
}

int measure_rank(const EngineFlags& flags, const Communicator& communicator, std::ostream& out) {
  const EngineSettings settings(flags, communicator);
  StepTimer timer(communicator, settings);
  std::ostream nowhere(nullptr);
  Table table(communicator.rank() == 0 ? out : nowhere, kColumns);
  introduce(table, flags, settings, communicator);
  const int batches = settings.has_rows_of_its_own() ? communicator.size() : 1;
  std::int64_t num_wrong = 0;
  const auto add = [&](const char* phase, std::int64_t rows, std::int64_t context, const StepResult& result) {
    table.row(cells(phase, rows, context, batches, result));
    num_wrong += result.num_wrong;
  };
  for (const std::int64_t rows : settings.prefill) add("prefill", rows, rows, timer.prefill(rows));
  for (const std::int64_t rows : settings.decode) add("decode", rows, settings.context, timer.decode(rows));
  table.comment(num_wrong == 0 ? "Logits: all finite OK" : "Logits: some are not finite FAILED");
  return num_wrong == 0 ? kExitGood : kExitWrong;
}

}  // namespace

int run_engine_perf(int argc, const char* const* argv, std::ostream& out) {
  CLI::App app("Tokens per second of a mixture-of-experts model with random weights, by one rank or several",
               "engine_perf");
  EngineFlags flags;
  flags.add_to(app);
  return run_tool(app, argc, argv, [&] {
    flags.parallel.prepare_driver();
    return measure_on_ranks(flags.parallel.ranks, flags.parallel.place, {},
                            [&](const Communicator& communicator) { return measure_rank(flags, communicator, out); });
  });
}

}  // namespace moelink::perf

#include "perf/engine/engine_perf.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ostream>

#include "perf/common/table.hpp"
#include "perf/common/tool.hpp"
#include "perf/engine/steps.hpp"

namespace moelink::perf {
namespace {

std::vector<std::string> cells(const char* phase, std::int64_t rows, std::int64_t context, const StepResult& result) {
  return {phase,
          std::to_string(rows),
          std::to_string(context),
          time_cell(result.step_us),
          fmt::format("{:.0f}", static_cast<double>(rows) / result.step_us * 1e6),
          percent_cell(result.dispatch_share),
          percent_cell(result.combine_share),
          result.captured ? "graph" : "calls",
          result.finite ? "0" : "1"};
}

int measure(const EngineFlags& flags, std::ostream& out) {
  const EngineSettings settings(flags);
  StepTimer timer(settings);
  Table table(out, {{"phase", "", 8},
                    {"rows", "", 7},
                    {"context", "", 8},
                    {"step", "us", 10},
                    {"tokens", "1/s", 10},
                    {"dispatch", "%", 9},
                    {"combine", "%", 9},
                    {"launch", "", 7},
                    {"#wrong", "", 7}});
  const engine::ModelConfig& config = settings.config;
  table.comment(fmt::format(
      "{} layers of hidden {}, {} heads ({} kv) of {}, {} experts of {}, top {}; vocabulary {}; {}; payload {}; {}",
      config.num_layers, config.hidden, config.num_heads, config.num_kv_heads, config.head_dim, config.num_experts,
      config.expert_intermediate, config.top_k, config.vocab_size, name_of(settings.type), name_of(settings.payload),
      settings.device.name()));
  table.comment("dispatch and combine: their part of a step that is launched call by call, with events between");
  table.header();
  bool good = true;
  for (const std::int64_t rows : settings.prefill) {
    const StepResult result = timer.prefill(rows);
    table.row(cells("prefill", rows, rows, result));
    good = good && result.finite;
  }
  for (const std::int64_t rows : settings.decode) {
    const StepResult result = timer.decode(rows);
    table.row(cells("decode", rows, settings.context, result));
    good = good && result.finite;
  }
  table.comment(good ? "Logits: all finite OK" : "Logits: some are not finite FAILED");
  return good ? kExitGood : kExitWrong;
}

}  // namespace

int run_engine_perf(int argc, const char* const* argv, std::ostream& out) {
  CLI::App app("Tokens per second of a mixture-of-experts model with random weights, one rank", "engine_perf");
  EngineFlags flags;
  flags.add_to(app);
  return run_tool(app, argc, argv, [&] { return measure(flags, out); });
}

}  // namespace moelink::perf

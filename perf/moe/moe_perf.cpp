#include "perf/moe/moe_perf.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ostream>

#include "perf/common/results.hpp"
#include "perf/common/tool.hpp"
#include "perf/moe/report.hpp"

namespace moelink::perf {
namespace {

void add_phase(const MoeFlags& flags, const MoeSettings& settings, const Model& model, std::int64_t num_tokens,
               const MoeResult& result, const PhaseResult& phase, Table& table, Results& results) {
  table.row(moe_cells(flags, settings, model, num_tokens, phase));
  add_row(results, flags, settings, model, num_tokens, result, phase);
  if (phase.wrong.value_or(0) != 0) {
    fmt::print(stderr, "moe_perf: {}, {} tokens, {}: first wrong value: {}\n", model.name, num_tokens, phase.phase,
               phase.first_wrong);
  }
}

void conclude(const MoeFlags& flags, Table& table, const Results& results) {
  table.comment(!results.checked()
                    ? std::string("Wrong values: not checked (-c 0)")
                    : fmt::format("Wrong values: {} {}", results.wrong(), results.wrong() == 0 ? "OK" : "FAILED"));
  if (!flags.output.json_path.empty()) results.write_json(flags.output.json_path);
  if (!flags.output.csv_path.empty()) results.write_csv(flags.output.csv_path);
}

int measure(const MoeFlags& flags, std::ostream& out, const MoeHooks& hooks) {
  const MoeSettings settings(flags);
  const std::vector<Model> models = flags.model.models();
  const std::vector<std::int64_t> token_counts = flags.tokens.sizes();
  require_writable(flags.output.json_path);
  require_writable(flags.output.csv_path);

  MoeBench bench(flags, settings, hooks);
  Progress progress("moe_perf", models.size() * token_counts.size());
  Table table(out, moe_columns(flags, settings));
  Results results("moe_perf");
  introduce(table, flags, settings, bench.num_threads());
  table.header();
  for (const Model& model : models) {
    for (const std::int64_t num_tokens : token_counts) {
      progress.start_case(fmt::format("{}, {} tokens", model.name, num_tokens));
      const MoeResult result = bench.run(model, num_tokens, progress);
      progress.clear();
      add_phase(flags, settings, model, num_tokens, result, result.dispatch, table, results);
      add_phase(flags, settings, model, num_tokens, result, result.combine, table, results);
    }
  }
  conclude(flags, table, results);
  return results.exit_code();
}

}  // namespace

int run_moe_perf(int argc, const char* const* argv, std::ostream& out, const MoeHooks& hooks) {
  CLI::App app("Times dispatch and combine of mixture-of-experts layers, and checks every value.", "moe_perf");
  MoeFlags flags;
  flags.add_to(app);
  return run_tool(app, argc, argv, [&] { return measure(flags, out, hooks); });
}

}  // namespace moelink::perf

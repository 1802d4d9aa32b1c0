#include "perf/moe/moe_perf.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ostream>
#include <sstream>

#include "perf/common/measure.hpp"
#include "perf/common/tool.hpp"
#include "perf/moe/report.hpp"

namespace moelink::perf {
namespace {

void add_phase(const MoeRun& run, const MoeCaseName& name, const MoeResult& result, const PhaseResult& phase,
               Table& table, Results& results) {
  table.row(moe_cells(run, name, phase));
  add_row(results, run, name, result, phase);
  if (!phase.first_wrong.empty()) {
    fmt::print(stderr, "moe_perf: {}, {} tokens, {}{}: first wrong value: {}\n", name.model.name,
               text_of_tokens(name.tokens_of_source), phase.phase,
               run.is_local() ? "" : fmt::format(", rank {}", run.settings.rank), phase.first_wrong);
  }
}

/// What puts go over, which an Exchange alone can tell: the line of its plan that speaks of remotes, if there is one.
std::string remotes_of(const std::string& plan, const std::string& transport) {
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" remotes over ") != std::string::npos) return line;
  }
  return "none: all ranks are of one node (--ranks-per-node makes more of it)" +
         (transport.empty() ? "" : "; --transport " + transport + " is not used");
}

/// Before the first row, and if it changes.
void say_remotes(const std::string& line, std::string& said, Table& table) {
  if (line == said) return;
  said = line;
  table.comment("puts: " + line);
}

/// What one rank does. Rank 0 has the table and the files; the exit code is the same on every rank.
int measure_rank(const MoeFlags& flags, const Communicator& communicator, std::ostream& out, const MoeHooks& hooks) {
  const MoeSettings settings(flags, communicator);
  const std::vector<Model> models = flags.model.models();
  const bool speaks = communicator.rank() == 0;
  std::ostringstream nowhere;

  MoeBench bench(flags, settings, communicator, hooks);
  const MoeRun run{.flags = flags,
                   .settings = settings,
                   .num_nodes = communicator.topology().num_nodes(),
                   .num_threads = bench.num_threads(),
                   .no_link_reason = bench.no_link_reason(),
                   .baseline_words = bench.baseline_words()};
  // What cannot be measured is said now, not after minutes.
  std::vector<int> num_sets;
  for (const Model& model : models) {
    for (const auto& tokens : settings.token_counts) num_sets.push_back(bench.choose_num_sets(model, tokens));
  }
  auto sets_of_case = num_sets.begin();
  Progress progress("moe_perf", models.size() * settings.token_counts.size(), speaks);
  Table table(speaks ? out : nowhere, moe_columns(run));
  Results results("moe_perf");
  std::string remotes;
  introduce(table, run);
  table.header();
  for (const Model& model : models) {
    for (const std::vector<std::int64_t>& tokens : settings.token_counts) {
      progress.start_case(fmt::format("{}, {} tokens", model.name, text_of_tokens(tokens)));
      const MoeResult result = bench.run(model, tokens, *sets_of_case++, progress);
      progress.clear();
      if (settings.mode == Mode::p2p) say_remotes(remotes_of(result.plan, settings.transport), remotes, table);
      for (const PhaseResult* phase : {&result.dispatch, &result.combine}) {
        add_phase(run, {model, tokens}, result, *phase, table, results);
      }
    }
  }
  return conclude(communicator, flags.output, results, table);
}

}  // namespace

int run_moe_perf(int argc, const char* const* argv, std::ostream& out, const MoeHooks& hooks) {
  CLI::App app("Times dispatch and combine of mixture-of-experts layers, and checks every value.", "moe_perf");
  MoeFlags flags;
  flags.add_to(app);
  return run_tool(app, argc, argv, [&] {
    return measure_on_ranks(flags.ranks, flags.place, flags.output, [&](const Communicator& communicator) {
      return measure_rank(flags, communicator, out, hooks);
    });
  });
}

}  // namespace moelink::perf

// How moe_perf shows its results: a table for people, rows for programs.
#pragma once

#include <string>
#include <vector>

#include "perf/common/results.hpp"
#include "perf/common/table.hpp"
#include "perf/moe/moe_bench.hpp"

namespace moelink::perf {

/// What was measured: the same for every phase of a run, or of a case.
struct MoeRun {
  const MoeFlags& flags;
  const MoeSettings& settings;
  int num_nodes = 1;
  int num_threads = 1;         ///< of each rank
  std::string no_link_reason;  ///< why the link was not measured
  std::string baseline_words;  ///< what the baseline does, or why there is none

  [[nodiscard]] bool is_local() const { return settings.mode == Mode::local; }
  [[nodiscard]] bool has_link() const { return !is_local() && no_link_reason.empty(); }
  [[nodiscard]] std::string baseline() const { return baseline_name(flags, settings); }
};
struct MoeCaseName {
  const Model& model;
  const std::vector<std::int64_t>& tokens_of_source;
};

[[nodiscard]] std::vector<Column> moe_columns(const MoeRun& run);

[[nodiscard]] std::vector<std::string> moe_cells(const MoeRun& run, const MoeCaseName& name, const PhaseResult& phase);

/// Lines that say what was measured, and how to read it.
void introduce(Table& table, const MoeRun& run);

/// Adds what JSON and CSV files say of one phase.
void add_row(Results& results, const MoeRun& run, const MoeCaseName& name, const MoeResult& result,
             const PhaseResult& phase);

}  // namespace moelink::perf

// How moe_perf shows its results: a table for people, rows for programs.
#pragma once

#include <string>
#include <vector>

#include "perf/common/results.hpp"
#include "perf/common/table.hpp"
#include "perf/moe/moe_bench.hpp"

namespace moelink::perf {

[[nodiscard]] std::vector<Column> moe_columns(const MoeFlags& flags, const MoeSettings& settings);

[[nodiscard]] std::vector<std::string> moe_cells(const MoeFlags& flags, const MoeSettings& settings, const Model& model,
                                                 std::int64_t num_tokens, const PhaseResult& phase);

/// Lines that say what was measured, and how to read it.
void introduce(Table& table, const MoeFlags& flags, const MoeSettings& settings, int num_threads);

/// Adds what JSON and CSV files say of one phase.
void add_row(Results& results, const MoeFlags& flags, const MoeSettings& settings, const Model& model,
             std::int64_t num_tokens, const MoeResult& result, const PhaseResult& phase);

}  // namespace moelink::perf

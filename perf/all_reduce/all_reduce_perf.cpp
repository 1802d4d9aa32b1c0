#include "perf/all_reduce/all_reduce_perf.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

#include "moelink/version.hpp"
#include "perf/all_reduce/bench.hpp"
#include "perf/common/measure.hpp"
#include "perf/common/progress.hpp"
#include "perf/common/tool.hpp"

namespace moelink::perf {
namespace {

/// One line of the table.
struct Line {
  std::int64_t size_bytes;
  std::int64_t num_elements;
  AllReduceAlgorithm algorithm;
  const AllReduceResult& result;
  int num_ranks;

  [[nodiscard]] double algorithm_gbps() const {
    return result.us.p50 > 0 ? static_cast<double>(size_bytes) / result.us.p50 / 1e3 : 0;
  }
  /// What a link would carry at least: nccl-tests' bus bandwidth.
  [[nodiscard]] double bus_gbps() const { return algorithm_gbps() * 2 * (num_ranks - 1) / num_ranks; }
};

void introduce(Table& table, const AllReduceFlags& flags, const Communicator& communicator) {
  table.comment(fmt::format("all_reduce_perf {}: {} ranks on {} node(s), device {}, {}, {}", MOELINK_VERSION,
                            communicator.size(), communicator.topology().num_nodes(), communicator.device().name(),
                            flags.type, flags.in_place ? "in place" : "out of place"));
  table.comment(fmt::format(
      "time: median over {} samples of the slowest rank, per call of a sample of many, {}", flags.measure.samples,
      communicator.device().is_cuda() && flags.measure.graph_replays > 0 ? "graph replay" : "launches"));
  table.comment("algbw: message / time; busbw: algbw * 2 (n - 1) / n, what every link carries at least");
  table.comment("#wrong: bit for bit; of nvls and nccl, which sum in an order of their own, within its rounding");
}

std::vector<Column> columns() {
  return {{"size", "B", 12},    {"count", "elements", 12}, {"type", "", 5},
          {"time", "us", 9},    {"p99", "us", 9},          {"algbw", "GB/s", 9},
          {"busbw", "GB/s", 9}, {"#wrong", "", 7},         {"algorithm, grid, memory", "", 44}};
}

void add_line(const AllReduceFlags& flags, const Line& line, const Communicator& communicator, Table& table,
              Results& results) {
  const AllReduceResult& result = line.result;
  table.row({std::to_string(line.size_bytes), std::to_string(line.num_elements), flags.type,
             result.ran ? time_cell(result.us.p50) : "N/A", result.ran ? time_cell(result.us.p99) : "N/A",
             rate_cell(line.algorithm_gbps()), rate_cell(line.bus_gbps()), wrong_cell(result.wrong), result.plan});
  if (!result.ran) return;
  results.add({{"tool", "all_reduce_perf"},
               {"mode", flags.place.mode},
               {"device", communicator.device().name()},
               {"ranks", communicator.size()},
               {"nodes", communicator.topology().num_nodes()},
               {"size_bytes", line.size_bytes},
               {"count", line.num_elements},
               {"type", flags.type},
               {"algorithm", name_of(line.algorithm)},
               {"plan", result.plan},
               {"in_place", flags.in_place},
               {"samples", flags.measure.samples},
               {"p50_us", result.us.p50},
               {"p99_us", result.us.p99},
               {"algorithm_gbps", line.algorithm_gbps()},
               {"bus_gbps", line.bus_gbps()},
               {"wrong", result.wrong ? nlohmann::ordered_json(*result.wrong) : nlohmann::ordered_json(nullptr)}},
              result.wrong);
  if (!result.first_wrong.empty()) {
    fmt::print(stderr, "all_reduce_perf: {} bytes: first wrong value on rank 0: {}\n", line.size_bytes,
               result.first_wrong);
  }
}

/// What one rank does. Rank 0 has the table; the exit code is the same on every rank.
int measure_rank(const AllReduceFlags& flags, const Communicator& communicator, std::ostream& out) {
  std::ostringstream nowhere;
  const bool speaks = communicator.rank() == 0;
  AllReduceBench bench(communicator, flags);
  Table table(speaks ? out : nowhere, columns());
  Results results("all_reduce_perf");
  introduce(table, flags, communicator);
  table.header();
  const auto element_bytes = static_cast<std::int64_t>(size_of(flags.data_type()));
  for (const std::int64_t size : flags.sizes.sizes()) {
    // A message shorter than an element is one element, but for none at all.
    const std::int64_t num_elements = size == 0 ? 0 : std::max<std::int64_t>(size / element_bytes, 1);
    for (const AllReduceAlgorithm algorithm : flags.algorithms()) {
      const AllReduceResult result = bench.run(algorithm, num_elements);
      add_line(flags, {num_elements * element_bytes, num_elements, algorithm, result, communicator.size()},
               communicator, table, results);
    }
  }
  return conclude(communicator, flags.output, results, table);
}

}  // namespace

int run_all_reduce_perf(int argc, const char* const* argv, std::ostream& out) {
  CLI::App app("Times the sum over ranks of messages of growing size, and checks every value.", "all_reduce_perf");
  AllReduceFlags flags;
  flags.add_to(app);
  return run_tool(app, argc, argv, [&] {
    return measure_on_ranks(flags.ranks, flags.place, flags.output,
                            [&](const Communicator& communicator) { return measure_rank(flags, communicator, out); });
  });
}

}  // namespace moelink::perf

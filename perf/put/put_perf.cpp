#include "perf/put/put_perf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

#include "moelink/version.hpp"
#include "perf/common/measure.hpp"
#include "perf/common/tool.hpp"
#include "perf/put/bench.hpp"

namespace moelink::perf {
namespace {

std::vector<Column> columns() {
  return {{"size", "B", 12}, {"iters", "", 8},   {"latency", "us", 9}, {"p99", "us", 9},
          {"BW", "GB/s", 9}, {"rate", "M/s", 9}, {"#wrong", "", 7},    {"transport", "", 44}};
}

void introduce(Table& table, const PutFlags& flags, const Communicator& communicator) {
  table.comment(fmt::format("put_perf {}: {} pair(s) of ranks on {} node(s)", MOELINK_VERSION, communicator.size() / 2,
                            communicator.topology().num_nodes()));
  table.comment("latency: half a round trip, median; BW and rate: one way, " + std::to_string(flags.depth) +
                " puts in flight; of the slowest pair");
}

void measure_transport(const PutFlags& flags, const std::string& transport, const Communicator& communicator,
                       Table& table, Results& results) {
  const std::vector<std::int64_t> sizes = flags.sizes.sizes();
  PutBench bench(communicator, flags, transport, static_cast<std::size_t>(*std::ranges::max_element(sizes)));
  for (const std::int64_t size : sizes) {
    const PutResult result = bench.run(static_cast<std::size_t>(size));
    table.row({std::to_string(size), std::to_string(flags.iterations), time_cell(result.latency_us.p50),
               time_cell(result.latency_us.p99), rate_cell(result.bandwidth_gbps), rate_cell(result.million_puts),
               wrong_cell(result.wrong), bench.describe()});
    results.add({{"tool", "put_perf"},
                 {"transport", bench.describe()},
                 {"ranks", communicator.size()},
                 {"nodes", communicator.topology().num_nodes()},
                 {"size_bytes", size},
                 {"iterations", flags.iterations},
                 {"depth", flags.depth},
                 {"latency_p50_us", result.latency_us.p50},
                 {"latency_p99_us", result.latency_us.p99},
                 {"bandwidth_gbps", result.bandwidth_gbps},
                 {"million_puts_per_s", result.million_puts},
                 {"wrong", result.wrong ? nlohmann::ordered_json(*result.wrong) : nlohmann::ordered_json(nullptr)}},
                result.wrong);
  }
}

/// What one rank does. Rank 0 has the table; the exit code is the same on every rank.
int measure_rank(const PutFlags& flags, const Communicator& communicator, std::ostream& out) {
  std::ostringstream nowhere;
  const bool speaks = communicator.rank() == 0;
  Table table(speaks ? out : nowhere, columns());
  Results results("put_perf");
  introduce(table, flags, communicator);
  table.header();
  for (const std::string& transport : flags.transport_list()) {
    measure_transport(flags, transport, communicator, table, results);
  }
  return conclude(communicator, flags.output, results, table);
}

}  // namespace

int run_put_perf(int argc, const char* const* argv, std::ostream& out) {
  CLI::App app("Times puts of growing size between pairs of ranks, and checks every byte.", "put_perf");
  PutFlags flags;
  flags.add_to(app);
  return run_tool(app, argc, argv, [&] {
    return measure_on_ranks(flags.ranks, flags.place, flags.output,
                            [&](const Communicator& communicator) { return measure_rank(flags, communicator, out); });
  });
}

}  // namespace moelink::perf

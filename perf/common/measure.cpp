#include "perf/common/measure.hpp"

#include <fmt/format.h>

#include <string>

#include "perf/common/tool.hpp"

namespace moelink::perf {

int measure_on_ranks(const RankFlags& ranks, const PlaceFlags& place, const OutputFlags& output,
                     const std::function<int(const Communicator&)>& measure_rank) {
  require_writable(output.json_path);
  require_writable(output.csv_path);
  int exit_code = kExitGood;
  run_on_ranks(ranks, place, [&](const Communicator& communicator) {
    const int mine = measure_rank(communicator);
    if (communicator.rank() == 0 || ranks.num_ranks == 0) exit_code = mine;
  });
  return exit_code;
}

int conclude(const Communicator& communicator, const OutputFlags& output, const Results& results, Table& table) {
  table.comment(!results.checked()
                    ? std::string("Wrong values: not checked (-c 0)")
                    : fmt::format("Wrong values: {} {}", results.wrong(), results.wrong() == 0 ? "OK" : "FAILED"));
  if (communicator.rank() == 0 && !output.json_path.empty()) results.write_json(output.json_path);
  if (communicator.rank() == 0 && !output.csv_path.empty()) results.write_csv(output.csv_path);
  return results.exit_code();
}

}  // namespace moelink::perf

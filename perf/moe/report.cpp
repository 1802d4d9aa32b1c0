#include "perf/moe/report.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "moelink/version.hpp"

namespace moelink::perf {
namespace {

bool uses_graphs(const MoeFlags& flags, const MoeSettings& settings) {
  return settings.device.is_cuda() && flags.measure.graph_replays > 0;
}

bool has_naive(const MoeFlags& flags) { return flags.baseline == "naive"; }

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::vector<Column> moe_columns(const MoeFlags& flags, const MoeSettings& settings) {
  std::vector<Column> columns = {{"model", "", 20}, {"tokens", "", 7},      {"hidden", "", 7},   {"experts", "", 7},
                                 {"topk", "", 4},   {"phase", "", 8},       {"size", "B", 12},   {"time", "us", 9},
                                 {"p99", "us", 9},  {"logical", "GB/s", 9}, {"wire", "GB/s", 9}, {"limit", "%", 7}};
  if (settings.device.is_cuda()) columns.push_back({"ceiling", "%", 7});
  if (has_naive(flags)) columns.push_back({"naive", "us", 9});
  columns.push_back({"#wrong", "", 7});
  return columns;
}

std::vector<std::string> moe_cells(const MoeFlags& flags, const MoeSettings& settings, const Model& model,
                                   std::int64_t num_tokens, const PhaseResult& phase) {
  std::vector<std::string> cells = {model.name,
                                    std::to_string(num_tokens),
                                    std::to_string(model.hidden),
                                    std::to_string(model.num_experts),
                                    std::to_string(model.top_k),
                                    phase.phase,
                                    fmt::format("{:.0f}", phase.logical_bytes),
                                    time_cell(phase.us.p50),
                                    time_cell(phase.us.p99),
                                    rate_cell(phase.logical_gbps()),
                                    rate_cell(phase.wire_gbps()),
                                    percent_cell(phase.limit_fraction())};
  const std::optional<double> ceiling = phase.ceiling_fraction();
  if (settings.device.is_cuda()) cells.push_back(ceiling ? percent_cell(*ceiling) : "N/A");
  if (has_naive(flags)) cells.push_back(phase.naive_us ? time_cell(*phase.naive_us) : "N/A");
  cells.push_back(wrong_cell(phase.wrong));
  return cells;
}

void introduce(Table& table, const MoeFlags& flags, const MoeSettings& settings, int num_threads) {
  const bool host = settings.device.is_host();
  table.comment(fmt::format("moe_perf {}: mode {}, device {}{}, 1 rank, seed {}", MOELINK_VERSION, flags.place.mode,
                            settings.device.name(), host ? fmt::format(", {} threads", num_threads) : "",
                            settings.seed));
  table.comment(fmt::format("payload {}, layout {}, alignment {}, routing {}, {} ids, weights {}",
                            name_of(settings.payload), name_of(settings.layout), settings.alignment,
                            name_of(settings.routing), name_of(settings.index), name_of(settings.weight_mode)));
  table.comment(fmt::format("time: median of {} samples per call, {}", flags.measure.samples,
                            host                           ? "host wall clock from enqueue to completion"
                            : uses_graphs(flags, settings) ? fmt::format("graph replay, {} L2", flags.measure.cache)
                                                           : fmt::format("launches, {} L2", flags.measure.cache)));
  table.comment("logical: rows that experts receive or give; wire: all bytes read and written once");
  table.comment(fmt::format("limit: time that {} needs to move the wire bytes, measured in this run, / time",
                            host ? fmt::format("memcpy by {} threads", num_threads) : "a device-to-device copy"));
  if (!host) table.comment("ceiling: time of the best plain kernel that only moves these rows, in this run, / time");
}

void add_row(Results& results, const MoeFlags& flags, const MoeSettings& settings, const Model& model,
             std::int64_t num_tokens, const MoeResult& result, const PhaseResult& phase) {
  const auto whole = [](double bytes) { return static_cast<std::int64_t>(std::llround(bytes)); };
  results.add({{"tool", "moe_perf"},
               {"model", model.name},
               {"mode", flags.place.mode},
               {"device", settings.device.name()},
               {"ranks", 1},
               {"tokens", num_tokens},
               {"hidden", model.hidden},
               {"experts", model.num_experts},
               {"topk", model.top_k},
               {"payload", name_of(settings.payload)},
               {"scale_bytes", settings.scale_bytes},
               {"layout", name_of(settings.layout)},
               {"alignment", settings.alignment},
               {"routing", name_of(settings.routing)},
               {"index", name_of(settings.index)},
               {"weights", name_of(settings.weight_mode)},
               {"phase", phase.phase},
               {"plan", result.plan},
               {"samples", flags.measure.samples},
               {"sets", result.num_sets},
               {"graph", uses_graphs(flags, settings)},
               {"cache", flags.measure.cache},
               {"p50_us", phase.us.p50},
               {"p99_us", phase.us.p99},
               {"logical_bytes", whole(phase.logical_bytes)},
               {"wire_bytes", whole(phase.moved_bytes)},
               {"logical_gbps", phase.logical_gbps()},
               {"wire_gbps", phase.wire_gbps()},
               {"limit", settings.device.is_host() ? "memcpy" : "device copy"},
               {"limit_us", phase.limit_us},
               {"limit_fraction", phase.limit_fraction()},
               {"ceiling_us", or_null(phase.ceiling_us)},
               {"ceiling_fraction", or_null(phase.ceiling_fraction())},
               {"naive_us", or_null(phase.naive_us)},
               {"wrong", or_null(phase.wrong)}},
              phase.wrong);
}

}  // namespace moelink::perf

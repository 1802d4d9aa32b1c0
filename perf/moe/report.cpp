#include "perf/moe/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "moelink/version.hpp"

namespace moelink::perf {
namespace {

bool uses_graphs(const MoeRun& run) { return run.settings.device.is_cuda() && run.flags.measure.graph_replays > 0; }

/// A host's own calls are part of their time; those of a graph are over before it is timed.
bool times_host(const MoeRun& run) { return run.settings.device.is_cuda() && !uses_graphs(run); }

std::string time_cell_of(const std::optional<double>& us) { return us ? time_cell(*us) : "N/A"; }
std::string percent_cell_of(const std::optional<double>& fraction) {
  return fraction ? percent_cell(*fraction) : "N/A";
}

std::int64_t most_tokens(const MoeCaseName& name) { return std::ranges::max(name.tokens_of_source); }

std::string payload_words(const MoeSettings& settings) {
  if (!settings.is_quantized()) return std::string(settings.payload_name());
  return fmt::format("{} ({})", settings.payload_name(),
                     settings.prequantized ? "quantised before dispatch" : "of bf16 rows, quantised by dispatch");
}

/// "bf16, packed ..." in words: what the rows are, and where they go.
std::string traffic_words(const MoeSettings& settings) {
  return fmt::format("payload {}, layout {}, alignment {}, routing {}, {} ids, weights {}", payload_words(settings),
                     name_of(settings.layout), settings.alignment, name_of(settings.routing), name_of(settings.index),
                     name_of(settings.weight_mode));
}

std::string group_words(const MoeSettings& settings) {
  const std::string parts =
      fmt::format("parts of sums in {}", name_of(settings.rounds_parts() ? settings.computed() : DataType::float32));
  if (!settings.is_data_parallel()) return fmt::format("{}, sums: {}", parts, name_of(settings.sum));
  return fmt::format("groups of {}, {} place(s) of an expert at most, {}, calls {}", settings.tp_size,
                     settings.replicas, parts, settings.split ? "in halves" : "fused");
}

std::string time_words(const MoeRun& run) {
  const bool host = run.settings.device.is_host();
  return fmt::format(
      "time: median of {} samples{} per call, {}", run.flags.measure.samples,
      run.is_local() ? "" : " of the slowest rank",
      host ? "host wall clock from enqueue to completion"
      : uses_graphs(run)
          ? fmt::format("graph replay, {} L2", run.flags.measure.cache)
          : fmt::format("launches, {} L2; host: what a call costs the thread that makes it", run.flags.measure.cache));
}

void explain_wire(Table& table, const MoeRun& run) {
  if (run.is_local()) {
    table.comment("logical: rows that experts receive or give; wire: all bytes read and written once");
    return;
  }
  table.comment(
      "logical: rows that a rank's experts receive or give, own tokens too; wire: bytes to or from other ranks");
  table.comment("bytes are the busiest rank's");
  if (run.has_link()) {
    table.comment("link: time that ranks need to store the wire bytes to each other, measured in this run, / time");
  } else {
    table.comment("link: not measured: " + run.no_link_reason);
  }
}

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::vector<Column> moe_columns(const MoeRun& run) {
  std::vector<Column> columns = {{"model", "", 20},  {"tokens", "", 7}, {"hidden", "", 7},
                                 {"experts", "", 7}, {"topk", "", 4},   {"phase", "", 8},
                                 {"size", "B", 12},  {"time", "us", 9}, {"p99", "us", 9}};
  if (run.settings.split) columns.insert(columns.end(), {{"send", "us", 9}, {"receive", "us", 9}});
  if (times_host(run)) columns.push_back({"host", "us", 9});
  columns.insert(columns.end(), {{"logical", "GB/s", 9}, {"wire", "GB/s", 9}});
  if (run.has_link()) columns.push_back({"link", "%", 7});
  columns.push_back({"limit", "%", 7});
  if (run.settings.device.is_cuda()) columns.push_back({"ceiling", "%", 7});
  if (run.baseline() != "none") columns.push_back({run.baseline(), "us", 9});
  columns.push_back({"#wrong", "", 7});
  if (run.settings.is_quantized()) columns.push_back({"error", "%", 7});
  return columns;
}

std::vector<std::string> moe_cells(const MoeRun& run, const MoeCaseName& name, const PhaseResult& phase) {
  std::vector<std::string> cells = {name.model.name,
                                    text_of_tokens(name.tokens_of_source),
                                    std::to_string(name.model.hidden),
                                    std::to_string(name.model.num_experts),
                                    std::to_string(name.model.top_k),
                                    phase.phase,
                                    fmt::format("{:.0f}", phase.logical_bytes),
                                    time_cell(phase.us.p50),
                                    time_cell(phase.us.p99)};
  if (run.settings.split) {
    cells.push_back(time_cell(phase.send_us.value_or(Percentiles{}).p50));
    cells.push_back(time_cell(phase.receive_us.value_or(Percentiles{}).p50));
  }
  if (times_host(run)) cells.push_back(time_cell(phase.host_us.value_or(Percentiles{}).p50));
  cells.push_back(rate_cell(phase.logical_gbps()));
  cells.push_back(rate_cell(phase.wire_gbps(run.is_local())));
  if (run.has_link()) cells.push_back(percent_cell_of(phase.link_fraction()));
  cells.push_back(percent_cell(phase.limit_fraction()));
  if (run.settings.device.is_cuda()) cells.push_back(percent_cell_of(phase.ceiling_fraction()));
  if (run.baseline() != "none") cells.push_back(time_cell_of(phase.baseline_us));
  cells.push_back(wrong_cell(phase.wrong));
  if (run.settings.is_quantized()) cells.push_back(percent_cell_of(phase.error));
  return cells;
}

void introduce(Table& table, const MoeRun& run) {
  const MoeSettings& settings = run.settings;
  const bool host = settings.device.is_host();
  const std::string threads = fmt::format("{} thread(s){}", run.num_threads, run.is_local() ? "" : " of each rank");
  table.comment(fmt::format("moe_perf {}: mode {}, device {}{}, {} rank{}{}, seed {}", MOELINK_VERSION,
                            run.flags.place.mode, settings.device.name(), host ? ", " + threads : "",
                            settings.num_ranks, settings.num_ranks == 1 ? "" : "s",
                            run.is_local() ? "" : fmt::format(" on {} node(s)", run.num_nodes), settings.seed));
  table.comment(traffic_words(settings));
  if (!run.is_local()) table.comment(group_words(settings));
  table.comment(time_words(run));
  explain_wire(table, run);
  table.comment(fmt::format("limit: time that {} needs to move {}, measured in this run, / time",
                            host ? "memcpy by " + threads : "a device-to-device copy",
                            run.is_local() ? "the wire bytes" : "what passes through a rank's memory"));
  if (!host) {
    table.comment(
        "ceiling: time of the best plain kernel that only moves rows inside this memory, in this run, / time");
  }
  if (settings.is_quantized()) {
    table.comment("wrong: against rows quantised, and experts run on what they stand for, by plain arithmetic");
    table.comment("error: of the combined result against the one without quantising, root of mean squares, relative");
  }
  if (!run.baseline_words.empty()) table.comment(run.baseline_words);
}

void add_row(Results& results, const MoeRun& run, const MoeCaseName& name, const MoeResult& result,
             const PhaseResult& phase) {
  const MoeSettings& settings = run.settings;
  const auto whole = [](double bytes) { return static_cast<std::int64_t>(std::llround(bytes)); };
  const auto median = [](const std::optional<Percentiles>& us) { return us ? std::optional(us->p50) : std::nullopt; };
  results.add({{"tool", "moe_perf"},
               {"model", name.model.name},
               {"mode", run.flags.place.mode},
               {"transport", settings.said_transport()},
               {"device", settings.device.name()},
               {"ranks", settings.num_ranks},
               {"nodes", run.num_nodes},
               {"tokens", most_tokens(name)},
               {"tokens_of_sources", text_of_tokens(name.tokens_of_source)},
               {"hidden", name.model.hidden},
               {"experts", name.model.num_experts},
               {"topk", name.model.top_k},
               {"payload", settings.payload_name()},
               {"prequantized", settings.prequantized},
               {"scale_bytes", settings.scale_bytes},
               {"layout", name_of(settings.layout)},
               {"alignment", settings.alignment},
               {"routing", name_of(settings.routing)},
               {"index", name_of(settings.index)},
               {"weights", name_of(settings.weight_mode)},
               {"tp_size", settings.tp_size},
               {"replicas", settings.replicas},
               {"fp32_partials", settings.fp32_partials},
               {"sum", run.flags.sum},
               {"max_sms", settings.max_sms},
               {"calls", run.flags.phase},
               {"phase", phase.phase},
               {"plan", result.plan},
               {"samples", run.flags.measure.samples},
               {"sets", result.num_sets},
               {"graph", uses_graphs(run)},
               {"cache", run.flags.measure.cache},
               {"p50_us", phase.us.p50},
               {"p99_us", phase.us.p99},
               {"send_us", or_null(median(phase.send_us))},
               {"receive_us", or_null(median(phase.receive_us))},
               {"host_us", or_null(median(phase.host_us))},
               {"logical_bytes", whole(phase.logical_bytes)},
               {"wire_bytes", whole(run.is_local() ? phase.moved_bytes : phase.wire_bytes)},
               {"moved_bytes", whole(phase.moved_bytes)},
               {"logical_gbps", phase.logical_gbps()},
               {"wire_gbps", phase.wire_gbps(run.is_local())},
               {"link_us", or_null(phase.link_us)},
               {"link_fraction", or_null(phase.link_fraction())},
               {"limit", settings.device.is_host() ? "memcpy" : "device copy"},
               {"limit_us", phase.limit_us},
               {"limit_fraction", phase.limit_fraction()},
               {"ceiling_us", or_null(phase.ceiling_us)},
               {"ceiling_fraction", or_null(phase.ceiling_fraction())},
               {"baseline", run.baseline()},
               {"baseline_us", or_null(phase.baseline_us)},
               {"wrong", or_null(phase.wrong)},
               {"error", or_null(phase.error)}},
              phase.wrong);
}

}  // namespace moelink::perf

#include "perf/quantize/quantize_perf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "moelink/version.hpp"
#include "perf/common/results.hpp"
#include "perf/common/size_list.hpp"
#include "perf/common/table.hpp"
#include "perf/common/tool.hpp"
#include "perf/common/usage_error.hpp"
#include "perf/quantize/bench.hpp"

namespace moelink::perf {
namespace {

constexpr Quantization kFormats[] = {Quantization::fp8, Quantization::fp8_pow2, Quantization::mxfp8,
                                     Quantization::mxfp4, Quantization::nvfp4};

struct QuantizeFlags {
  SweepFlags rows;
  MeasureFlags measure;
  PlaceFlags place;
  OutputFlags output;
  ModelFlags model;
  std::string formats = "fp8,fp8_pow2,mxfp8,mxfp4,nvfp4";

  void add_to(CLI::App& app) {
    rows.factor = 8;
    add_sweep_flags(app, rows, "--tokens", "number of rows", "8", "8192");
    add_measure_flags(app, measure);
    add_place_flags(app, place, {"local"});
    add_output_flags(app, output);
    add_model_flags(app, model);
    app.add_option("--format", formats, "fp8, fp8_pow2, mxfp8, mxfp4, nvfp4, or several: fp8,nvfp4")
        ->capture_default_str()
        ->group("Traffic");
  }

  [[nodiscard]] std::vector<Quantization> format_list() const {
    std::vector<Quantization> list;
    for (const std::string_view name : split_commas(formats)) {
      const auto* found = std::ranges::find_if(kFormats, [&](Quantization f) { return name_of(f) == name; });
      if (found == std::end(kFormats)) {
        throw UsageError(fmt::format("--format: '{}' is not known; give fp8, fp8_pow2, mxfp8, mxfp4 or nvfp4", name));
      }
      list.push_back(*found);
    }
    return list;
  }
};

std::vector<Column> columns() {
  return {{"format", "", 9}, {"rows", "", 8},   {"columns", "", 8},  {"moved", "B", 12}, {"time", "us", 9},
          {"p99", "us", 9},  {"BW", "GB/s", 9}, {"of copy", "%", 8}, {"#wrong", "", 7}};
}

void measure_one(QuantizeBench& bench, const QuantizeFlags& flags, Quantization format, std::int64_t rows,
                 std::int64_t num_columns, Table& table, Results& results) {
  const QuantizeResult result = bench.run(format, rows, num_columns, flags.place.seed);
  table.row({std::string(name_of(format)), std::to_string(rows), std::to_string(num_columns),
             std::to_string(result.moved_bytes), time_cell(result.us.p50), time_cell(result.us.p99),
             rate_cell(result.gbps()), percent_cell(result.copy_fraction()), wrong_cell(result.wrong)});
  results.add({{"tool", "quantize_perf"},
               {"format", name_of(format)},
               {"device", flags.place.device().name()},
               {"rows", rows},
               {"columns", num_columns},
               {"moved_bytes", result.moved_bytes},
               {"samples", flags.measure.samples},
               {"sets", result.num_sets},
               {"p50_us", result.us.p50},
               {"p99_us", result.us.p99},
               {"gbps", result.gbps()},
               {"copy_us", result.copy_us},
               {"copy_fraction", result.copy_fraction()},
               {"wrong", result.wrong ? nlohmann::ordered_json(*result.wrong) : nlohmann::ordered_json(nullptr)}},
              result.wrong);
  if (!result.first_wrong.empty()) {
    fmt::print(stderr, "quantize_perf: {}, {} rows: first wrong: {}\n", name_of(format), rows, result.first_wrong);
  }
}

int measure(const QuantizeFlags& flags, std::ostream& out) {
  require_writable(flags.output.json_path);
  require_writable(flags.output.csv_path);
  const std::vector<Quantization> formats = flags.format_list();
  const Device device = flags.place.device();
  const int threads = flags.place.threads != 0 ? flags.place.threads
                                               : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  QuantizeBench bench(device, threads, flags.measure);
  Table table(out, columns());
  Results results("quantize_perf");
  table.comment(fmt::format("quantize_perf {}: device {}, rows of bf16, seed {}", MOELINK_VERSION, device.name(),
                            flags.place.seed));
  table.comment("of copy: time that a copy needs which reads and writes as many bytes, in this run, / time");
  table.header();
  for (const Model& model : flags.model.models()) {
    for (const Quantization format : formats) {
      for (const std::int64_t rows : flags.rows.sizes()) {
        measure_one(bench, flags, format, rows, model.hidden, table, results);
      }
    }
  }
  table.comment(!results.checked()
                    ? std::string("Wrong values: not checked (-c 0)")
                    : fmt::format("Wrong values: {} {}", results.wrong(), results.wrong() == 0 ? "OK" : "FAILED"));
  if (!flags.output.json_path.empty()) results.write_json(flags.output.json_path);
  if (!flags.output.csv_path.empty()) results.write_csv(flags.output.csv_path);
  return results.exit_code();
}

}  // namespace

int run_quantize_perf(int argc, const char* const* argv, std::ostream& out) {
  CLI::App app("Times the stand-alone quantise of rows against copies, and checks every byte.", "quantize_perf");
  QuantizeFlags flags;
  flags.add_to(app);
  return run_tool(app, argc, argv, [&] { return measure(flags, out); });
}

}  // namespace moelink::perf

// Flags that all perf tools share, named as in nccl-tests where nccl-tests has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moelink/device.hpp"
#include "perf/common/model.hpp"
#include "perf/common/timing.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): the name that CLI11 has
class App;
}

namespace moelink::perf {

/// What to measure over: -b -e -f, or a list.
struct SweepFlags {
  std::string begin;
  std::string end;
  std::int64_t factor = 2;
  std::string list;

  [[nodiscard]] std::vector<std::int64_t> sizes() const;
};

/// How to measure: -n -w -c -G and the cache.
struct MeasureFlags {
  int samples = 20;
  int warmup = 5;
  int check = 1;
  int graph_replays = 1;
  int num_sets = 0;
  std::string cache = "cold";

  [[nodiscard]] TimingOptions timing() const;
};

/// Where: device, threads, seed, mode.
struct PlaceFlags {
  std::string mode;
  std::string device_name = "auto";
  int threads = 0;
  std::uint64_t seed = 1;

  /// Throws UsageError if the name is none or this machine has no such device.
  [[nodiscard]] Device device() const;
};

/// Where results go besides the table.
struct OutputFlags {
  std::string json_path;
  std::string csv_path;
};

/// Which shapes: models, and numbers that replace theirs.
struct ModelFlags {
  std::string names = "deepseek-v3";
  std::int64_t hidden = 0;
  std::int64_t num_experts = 0;
  int top_k = 0;

  [[nodiscard]] std::vector<Model> models() const;
};

/// `list_flag` is the tool's name for a list of sizes ("--tokens"), `what` says what a size is.
void add_sweep_flags(CLI::App& app, SweepFlags& flags, const std::string& list_flag, const std::string& what,
                     const std::string& begin, const std::string& end);
void add_measure_flags(CLI::App& app, MeasureFlags& flags);
/// `modes`: those the tool knows; the first is the default.
void add_place_flags(CLI::App& app, PlaceFlags& flags, const std::vector<std::string>& modes);
void add_output_flags(CLI::App& app, OutputFlags& flags);
void add_model_flags(CLI::App& app, ModelFlags& flags);
/// What to time beside the library, in the same run; "none" is the default.
void add_baseline_flag(CLI::App& app, std::string& baseline, const std::vector<std::string>& known);

}  // namespace moelink::perf

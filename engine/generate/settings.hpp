// What moelink-generate is asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/requests/engine.hpp"
#include "engine/requests/sampling.hpp"
#include "perf/common/flags.hpp"
#include "perf/common/ranks.hpp"

namespace moelink::engine {

/// The command line.
struct GenerateFlags {
  std::string model;
  std::vector<std::string> prompts;
  std::vector<std::string> files;
  std::int64_t max_tokens = 128;
  SamplingOptions sampling;
  bool ignore_end = false;
  bool show_tokens = false;
  std::string parallel = "data";
  std::string type = "auto";
  std::int64_t num_pages = 0;
  std::int64_t page_size = 16;
  std::int64_t step_rows = 256;
  perf::PlaceFlags place;
  perf::RankFlags ranks;

  void add_to(CLI::App& app);
};

/// Checked, before a model is loaded. Throws UsageError, naming the flag.
struct GenerateSettings {
  explicit GenerateSettings(const GenerateFlags& flags);

  std::vector<std::string> prompts;
  ModelOptions model;
};

}  // namespace moelink::engine

// What moelink-generate is asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/frontend/engine_flags.hpp"
#include "engine/requests/sampling.hpp"

namespace moelink::engine {

/// The command line.
struct GenerateFlags {
  EngineFlags engine;
  std::vector<std::string> prompts;
  std::vector<std::string> files;
  std::int64_t max_tokens = 128;
  SamplingOptions sampling;
  bool ignore_end = false;
  bool show_tokens = false;

  void add_to(CLI::App& app);
};

/// Checked, before a model is loaded. Throws UsageError, naming the flag.
struct GenerateSettings {
  explicit GenerateSettings(const GenerateFlags& flags);

  std::vector<std::string> prompts;
  ModelOptions model;
};

}  // namespace moelink::engine

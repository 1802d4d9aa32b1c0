// What engine_perf measures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/frontend/parallel_flags.hpp"
#include "engine/model/config.hpp"
#include "moelink/types.hpp"

namespace moelink::perf {

/// The command line. The defaults are the layers of Qwen3-30B-A3B.
struct EngineFlags {
  std::int64_t layers = 4;
  std::int64_t hidden = 2048;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 4;
  std::int64_t head_dim = 128;
  std::int64_t experts = 128;
  int top_k = 8;
  std::int64_t width = 768;
  std::int64_t vocabulary = 151936;
  std::string prefill = "128,1024";
  std::string decode = "1,8,32,64";
  std::int64_t context = 1024;
  std::string type = "bf16";
  int samples = 20;
  engine::ParallelFlags parallel;

  void add_to(CLI::App& app);
};

/// Checked, before anything is allocated. Throws UsageError, naming the flag.
struct EngineSettings {
  EngineSettings(const EngineFlags& flags, const Communicator& communicator);

  [[nodiscard]] bool has_rows_of_its_own() const { return model.parallelism == engine::Parallelism::data; }

  engine::ModelConfig config;
  engine::ModelOptions model;         ///< without limits
  std::vector<std::int64_t> prefill;  ///< rows of one step of a rank, of one sequence
  std::vector<std::int64_t> decode;   ///< rows of one step of a rank, each of a sequence of its own
  std::int64_t context = 0;           ///< positions that decode attends to
  int samples = 0;
  int threads = 0;  ///< of a rank on the host
  std::uint64_t seed = 0;
};

}  // namespace moelink::perf

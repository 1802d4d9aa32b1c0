// What engine_perf measures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/config.hpp"
#include "moelink/types.hpp"
#include "perf/common/flags.hpp"
#include "perf/common/quantization_flag.hpp"

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
  QuantizationFlag payload;
  PlaceFlags place;

  void add_to(CLI::App& app);
};

struct EngineSettings {
  explicit EngineSettings(const EngineFlags& flags);

  Device device;
  engine::ModelConfig config;
  DataType type = DataType::bfloat16;
  Quantization payload = Quantization::none;
  std::vector<std::int64_t> prefill;  ///< rows of one step, of one sequence
  std::vector<std::int64_t> decode;   ///< rows of one step, each of a sequence of its own
  std::int64_t context = 0;           ///< positions that decode attends to
  int samples = 0;
  std::uint64_t seed = 0;
};

}  // namespace moelink::perf

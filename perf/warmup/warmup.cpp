#include "perf/warmup/warmup.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "moelink/warm_up.hpp"
#include "perf/common/flags.hpp"
#include "perf/common/table.hpp"
#include "perf/common/tool.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

struct Settings {
  ModelFlags models;
  std::vector<std::string> architectures;
  std::vector<std::string> payloads = {"bf16"};
  std::int64_t scale_bytes = 0;
  std::int64_t max_tokens = 4096;
  bool weights_on_input = false;
  bool replicated_inputs = false;
  int tp_size = 1;
  WarmUpRanks ranks;
};

// Those named, else those of the GPUs here.
std::vector<std::string> architectures_of(const Settings& settings) {
  std::set<std::string> architectures(settings.architectures.begin(), settings.architectures.end());
  for (int i = 0; settings.architectures.empty() && i < Device::cuda_count(); ++i) {
    architectures.insert(kernel_architecture(Device::cuda(i)));
  }
  if (architectures.empty()) {
    throw UsageError("this machine has no GPU to compile for; name one: --architecture sm_90a");
  }
  return {architectures.begin(), architectures.end()};
}

DataType type_of(const std::string& name) {
  for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32, DataType::bytes}) {
    if (name == name_of(type)) return type;
  }
  throw UsageError(fmt::format("--payload {} is unknown; known: bf16, fp16, fp32, bytes", name));
}

// Rows of bytes are as long as fp8 rows: one byte an element.
ExchangeConfig config_of(const Model& model, const Settings& settings) {
  ExchangeConfig config{.num_experts = model.num_experts,
                        .top_k = model.top_k,
                        .hidden = model.hidden,
                        .max_tokens = settings.max_tokens,
                        .weights_on_input = settings.weights_on_input};
  config.replicated_inputs = settings.replicated_inputs;
  config.tp_size = settings.tp_size;
  config.payloads.clear();
  config.combine_types.clear();
  for (const std::string& name : settings.payloads) {
    const DataType type = type_of(name);
    const bool is_opaque = type == DataType::bytes;
    config.payloads.push_back(
        {.type = type, .row_bytes = is_opaque ? model.hidden : 0, .scale_bytes = is_opaque ? settings.scale_bytes : 0});
    const DataType computed = is_opaque ? DataType::bfloat16 : type;
    const CombineTypes types{.expert_output = computed, .output = computed};
    if (std::find(config.combine_types.begin(), config.combine_types.end(), types) == config.combine_types.end()) {
      config.combine_types.push_back(types);
    }
  }
  return config;
}

int warm_up_all(const Settings& settings, std::ostream& out) {
  const std::vector<std::string> architectures = architectures_of(settings);
  Table table(out, {{"model", "", 18},
                    {"kernel", "", 20},
                    {"arch", "", 9},
                    {"origin", "", 11},
                    {"time", "ms", 8},
                    {"regs", "", 6},
                    {"spilled", "B", 8}});
  table.header();
  for (const Model& model : settings.models.models()) {
    for (const std::string& architecture : architectures) {
      for (const KernelReport& kernel : warm_up(config_of(model, settings), architecture, settings.ranks)) {
        table.row({model.name, kernel.name, architecture, kernel.origin, fmt::format("{:.1f}", kernel.milliseconds),
                   std::to_string(kernel.registers), std::to_string(kernel.spilled_bytes)});
      }
    }
  }
  return kExitGood;
}

}  // namespace

int run_warmup(int argc, const char* const* argv, std::ostream& out) {
  Settings settings;
  CLI::App app(
      "Compiles the kernels of the given shapes into the cache (MOELINK_CACHE_DIR), so that constructing an "
      "Exchange there compiles nothing. Needs NVRTC, and no GPU.",
      "moelink-warmup");
  add_model_flags(app, settings.models);
  app.add_option("--architecture", settings.architectures,
                 "GPU architectures to compile for, such as sm_90a,sm_100a (default: those of the GPUs here)")
      ->delimiter(',');
  app.add_option("--payload", settings.payloads, "payloads of dispatch: bf16, fp16, fp32, bytes (one per element)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--scale-bytes", settings.scale_bytes, "bytes of scales that travel with a row of bytes")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-tokens", settings.max_tokens, "most tokens of one dispatch, as in ExchangeConfig")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_flag("--weights-on-input", settings.weights_on_input, "also what WeightMode::on_input needs");
  app.add_option("--ranks", settings.ranks.num_ranks, "ranks that will share the experts")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--ranks-per-node", settings.ranks.ranks_per_node, "mode p2p: ranks of one node (0: all)")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--tp-size", settings.tp_size, "modes nvlink and p2p: ranks that pass the same tokens")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_flag("--replicated-inputs", settings.replicated_inputs,
               "every rank passes the same tokens (tensor parallel)");
  return run_tool(app, argc, argv, [&] { return warm_up_all(settings, out); });
}

}  // namespace moelink::perf

#include "perf/common/model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "perf/common/size_list.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::perf {

std::span<const Model> known_models() {
  static const std::vector<Model> models = {
      {"qwen3-30b-a3b", 2048, 128, 8},
      {"qwen3-235b", 4096, 128, 8},
      {"qwen3-next", 2048, 512, 10},
      {"deepseek-v3", 7168, 256, 8},
      {"deepseek-v2-lite", 2048, 64, 6},
      {"kimi-k2", 7168, 384, 8},
      {"kimi-k3", 3584, 896, 16},
      {"glm-4.5", 5120, 160, 8},
      {"minimax-m2", 3072, 256, 8},
      {"gpt-oss-120b", 2880, 128, 4},
      {"gpt-oss-20b", 2880, 32, 4},
      {"llama-4-maverick", 5120, 128, 1},
      {"mixtral-8x7b", 4096, 8, 2},
      {"qwen1.5-moe", 2048, 60, 4},
      {"olmoe", 2048, 64, 8},
      {"granite-3.0-1b-a400m", 1024, 32, 8},
      {"nemotron-3-super", 1024, 512, 22},
      {"nemotron-3-nano", 2688, 128, 6},
  };
  return models;
}

std::vector<Model> models_of_names(std::string_view names) {
  const std::span<const Model> known = known_models();
  if (names == "all") {
    return {known.begin(), known.end()};
  }
  std::vector<Model> found;
  for (const std::string_view name : split_commas(names)) {
    const auto model = std::ranges::find(known, name, &Model::name);
    if (model == known.end()) {
      std::string all;
      for (const Model& each : known) {
        all += " " + each.name;
      }
      throw UsageError(fmt::format("--model: '{}' is not known; give 'all' or some of:{}", name, all));
    }
    found.push_back(*model);
  }
  return found;
}

}  // namespace moelink::perf

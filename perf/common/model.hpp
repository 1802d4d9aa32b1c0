// The mixture-of-experts shapes of published models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moelink::perf {

struct Model {
  std::string name;
  std::int64_t hidden = 0;  ///< elements of one token where experts see it (a latent size, for some)
  std::int64_t num_experts = 0;
  int top_k = 0;
};

[[nodiscard]] std::span<const Model> known_models();

/// Models by name, separated by commas, or "all". Throws UsageError naming what is known.
[[nodiscard]] std::vector<Model> models_of_names(std::string_view names);

}  // namespace moelink::perf

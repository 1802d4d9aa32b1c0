// Who goes where: seeded routing of several shapes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace moelink::perf {

enum class RoutingKind {
  uniform,  ///< every token picks distinct experts, all equally likely
  zipf,     ///< distinct experts, the i-th most popular one with weight 1 / i
  khot,     ///< every token picks the same top_k experts
  one,      ///< one expert gets every entry, top_k times per token
};

[[nodiscard]] RoutingKind routing_of_name(std::string_view name);
[[nodiscard]] std::string_view name_of(RoutingKind kind) noexcept;

struct Routing {
  std::int64_t num_tokens = 0;
  std::int64_t num_experts = 0;
  int top_k = 0;
  std::vector<std::int64_t> expert_ids = {};  ///< [num_tokens, top_k]
  std::vector<float> weights = {};            ///< [num_tokens, top_k], positive, adding up to about 1 per token
};

/// The same arguments give the same routing. More distinct experts than there are is a UsageError.
[[nodiscard]] Routing make_routing(RoutingKind kind, std::int64_t num_tokens, std::int64_t num_experts, int top_k,
                                   std::uint64_t seed);

}  // namespace moelink::perf

#include "perf/common/routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "perf/common/random.hpp"
#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

constexpr std::array<std::pair<std::string_view, RoutingKind>, 4> kNames = {{
    {"uniform", RoutingKind::uniform},
    {"zipf", RoutingKind::zipf},
    {"khot", RoutingKind::khot},
    {"one", RoutingKind::one},
}};

/// The first `count` of a shuffle of all experts; `experts` stays a permutation, so it can be drawn from again.
void draw_uniform(std::vector<std::int64_t>& experts, int count, std::int64_t* to, Random& random) {
  for (int i = 0; i < count; ++i) {
    const std::size_t place = static_cast<std::size_t>(i) + random.below(experts.size() - static_cast<std::size_t>(i));
    std::swap(experts[static_cast<std::size_t>(i)], experts[place]);
    to[i] = experts[static_cast<std::size_t>(i)];
  }
}

/// Weighted sampling without replacement: the largest log(u) / weight win (Efraimidis and Spirakis, 2006).
void draw_zipf(const std::vector<std::int64_t>& by_popularity, int count, std::int64_t* to, Random& random,
               std::vector<std::pair<double, std::int64_t>>& keys) {
  for (std::size_t i = 0; i < by_popularity.size(); ++i) {
    keys[i] = {std::log(random.unit()) * static_cast<double>(i + 1), by_popularity[i]};
  }
  std::partial_sort(keys.begin(), keys.begin() + count, keys.end(), std::greater<>{});
  for (int i = 0; i < count; ++i) {
    to[i] = keys[static_cast<std::size_t>(i)].second;
  }
}

void draw_weights(int count, float* to, Random& random) {
  double sum = 0;
  std::array<double, 64> raw{};
  for (int i = 0; i < count; ++i) {
    raw[static_cast<std::size_t>(i)] = 0.05 + random.unit();
    sum += raw[static_cast<std::size_t>(i)];
  }
  for (int i = 0; i < count; ++i) {
    to[i] = static_cast<float>(raw[static_cast<std::size_t>(i)] / sum);
  }
}

}  // namespace

RoutingKind routing_of_name(std::string_view name) {
  for (const auto& [known, kind] : kNames) {
    if (known == name) return kind;
  }
  throw UsageError(fmt::format("--routing: '{}' is not known; give uniform, zipf, khot or one", name));
}

std::string_view name_of(RoutingKind kind) noexcept {
  for (const auto& [name, known] : kNames) {
    if (known == kind) return name;
  }
  return "?";
}

Routing make_routing(RoutingKind kind, std::int64_t num_tokens, std::int64_t num_experts, int top_k,
                     std::uint64_t seed) {
  if (kind != RoutingKind::one && top_k > num_experts) {
    throw UsageError(
        fmt::format("routing '{}' picks distinct experts, but top-k {} is more than the {} experts there "
                    "are; use a smaller --topk or --routing one",
                    name_of(kind), top_k, num_experts));
  }
  Random random(seed);
  std::vector<std::int64_t> experts(static_cast<std::size_t>(num_experts));
  std::iota(experts.begin(), experts.end(), 0);
  for (std::size_t i = experts.size(); i > 1; --i) {
    std::swap(experts[i - 1], experts[random.below(i)]);
  }
  std::vector<std::pair<double, std::int64_t>> keys(experts.size());

  Routing routing{.num_tokens = num_tokens, .num_experts = num_experts, .top_k = top_k};
  routing.expert_ids.resize(static_cast<std::size_t>(num_tokens * top_k));
  routing.weights.resize(routing.expert_ids.size());
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    std::int64_t* ids = routing.expert_ids.data() + token * top_k;
    switch (kind) {
      case RoutingKind::uniform:
        draw_uniform(experts, top_k, ids, random);
        break;
      case RoutingKind::zipf:
        draw_zipf(experts, top_k, ids, random, keys);
        break;
      case RoutingKind::khot:
        std::copy_n(experts.begin(), top_k, ids);
        break;
      case RoutingKind::one:
        std::fill_n(ids, top_k, experts.front());
        break;
    }
    draw_weights(top_k, routing.weights.data() + token * top_k, random);
  }
  return routing;
}

}  // namespace moelink::perf

// Which part of a model one rank has.
#pragma once

#include <cstdint>

#include "engine/model/config.hpp"

namespace moelink::engine {

/// Ranks [0, size) share the attention heads of a layer, or each has all of them (size 1).
struct HeadShare {
  int rank = 0;
  int size = 1;
};

/// A half-open range.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] constexpr std::int64_t size() const noexcept { return end - begin; }
};

struct Shard {
  Range heads;     ///< query heads
  Range kv_heads;  ///< the key and value heads that they use: with fewer of these than ranks, several ranks have one
  Range experts;
};

/// Throws ErrorCode::unsupported if the heads cannot be shared out evenly.
[[nodiscard]] Shard shard_of(const ModelConfig& config, const HeadShare& share, Range experts);

}  // namespace moelink::engine

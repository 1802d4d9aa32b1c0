// Numbers from a seed, the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

namespace moelink::engine::testing {

/// `count` floats between -1 and 1.
inline std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::vector<float> values;
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    values.push_back(static_cast<float>(static_cast<std::int32_t>(state >> 32)) / 2147483648.0F);
  }
  return values;
}

}  // namespace moelink::engine::testing

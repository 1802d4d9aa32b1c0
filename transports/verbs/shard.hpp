// How a put is spread over the NICs of a rank.
#pragma once

#include <cstddef>

namespace moelink {

struct Shard {
  std::size_t offset_bytes = 0;
  std::size_t size_bytes = 0;
};

/// Part `lane` of `num_lanes` of `size_bytes`: the parts follow each other, and together are all of it, also where
/// nothing divides it. All but the last end on a cache line, so that no two NICs write one. Parts may be empty.
[[nodiscard]] constexpr Shard shard_of(std::size_t size_bytes, int lane, int num_lanes) noexcept {
  constexpr std::size_t kLine = 128;
  const auto lanes = static_cast<std::size_t>(num_lanes);
  const std::size_t lines = (size_bytes + kLine - 1) / kLine;
  const auto start_of = [&](std::size_t part) {
    const std::size_t first_line = lines / lanes * part + (part < lines % lanes ? part : lines % lanes);
    return first_line * kLine < size_bytes ? first_line * kLine : size_bytes;
  };
  const std::size_t start = start_of(static_cast<std::size_t>(lane));
  return {start, start_of(static_cast<std::size_t>(lane) + 1) - start};
}

}  // namespace moelink

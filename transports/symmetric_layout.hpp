// What lies where in one rank's symmetric allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "moelink/error.hpp"

namespace moelink {

/// The caller's bytes first, so that they have the allocation's own alignment; then what the library keeps there.
struct SymmetricLayout {
  std::size_t farewell_offset;  ///< [num_ranks] u64: rank r writes 1 when it will not touch this memory again
  std::size_t table_offset;     ///< [num_ranks] pointers: Window::table
  std::size_t total_bytes;
};

[[nodiscard]] constexpr SymmetricLayout symmetric_layout(std::size_t size_bytes, int num_ranks) {
  constexpr std::size_t kLineBytes = 256;
  const std::size_t words_bytes = (static_cast<std::size_t>(num_ranks) * 8 + kLineBytes - 1) / kLineBytes * kLineBytes;
  if (size_bytes == 0 || size_bytes > std::numeric_limits<std::int64_t>::max() - 2 * words_bytes - kLineBytes) {
    throw Error(ErrorCode::invalid_argument,
                "symmetric memory of " + std::to_string(size_bytes) + " bytes was asked for; expected 1 to about 2^63");
  }
  const std::size_t farewell_offset = (size_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  return {farewell_offset, farewell_offset + words_bytes, farewell_offset + 2 * words_bytes};
}

}  // namespace moelink

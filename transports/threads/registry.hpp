// The memory that ranks of this process have published, by number: a ticket is bytes, and a share of somebody's life
// cannot travel in bytes.
#pragma once

#include <cstdint>
#include <memory>

#include "transports/memory.hpp"

namespace moelink {

/// What a thread publishes: memory, and where it is.
struct PublishedMemory {
  std::shared_ptr<MappedMemory> memory;
  int device_ordinal = -1;  ///< -1: host
};

/// A number under which find_published() gives the memory while somebody holds it.
[[nodiscard]] std::uint64_t publish(const std::shared_ptr<MappedMemory>& memory, int device_ordinal);
/// The memory is null if nobody holds it any longer.
[[nodiscard]] PublishedMemory find_published(std::uint64_t id);

}  // namespace moelink

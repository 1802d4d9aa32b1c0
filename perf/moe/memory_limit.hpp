// Whether what is to be measured fits in memory, and how often: asked before anything is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "moelink/communicator.hpp"

namespace moelink::perf {

/// Bytes that can be had on a device now; none: nobody can tell.
[[nodiscard]] std::optional<std::int64_t> available_bytes(Device device);

/// How many sets of buffers the ranks that share a device can have there.
struct MemoryLimit {
  std::int64_t set_bytes = 0;        ///< of all ranks on the tightest device
  std::int64_t available_bytes = 0;  ///< there
  std::string device;                ///< its name
  int num_ranks = 1;                 ///< that share it
  std::int64_t most_sets = 0;
};

/// The tightest of all devices, the same on every rank; none where nobody can tell. `my_set_bytes` is what one set of this
/// rank takes. Collective.
[[nodiscard]] std::optional<MemoryLimit> memory_limit(const Communicator& communicator, std::int64_t my_set_bytes);

/// "1.5 GB".
[[nodiscard]] std::string text_of_bytes(std::int64_t bytes);

}  // namespace moelink::perf

// Settings of the memory that ranks map.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "transports/memory.hpp"

namespace moelink {

struct PeerGroupOptions {
  /// How long this rank waits for its peers while memory is mapped.
  std::chrono::milliseconds deadline{30'000};
  /// How long a destructor waits for peers that may still write this rank's memory (kinds of Lifetime::owner, and
  /// multicast).
  std::chrono::milliseconds farewell_deadline{5'000};
  /// Where sockets are made for a moment: 0700, this user's. Empty: MOELINK_SOCKET_DIR, else /tmp/moelink-<uid>.
  std::string socket_directory{};
  /// Whether buffers may have a multicast mapping (NVLS). Nothing: MOELINK_NVLS and NCCL_NVLS_ENABLE decide.
  std::optional<bool> multicast{};
  /// Consider no other kind.
  std::optional<MemoryKind> only{};
};

}  // namespace moelink

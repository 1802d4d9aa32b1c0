// Symmetric memory of ranks that meet through a rendezvous.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "transports/descriptors/private_directory.hpp"
#include "transports/memory.hpp"
#include "transports/rendezvous.hpp"
#include "transports/symmetric_buffer.hpp"

namespace moelink {

struct AllocateOptions {
  /// How long this rank waits for its peers while memory is mapped.
  std::chrono::milliseconds deadline{30'000};
  /// How long a destructor waits for peers that may still write this rank's memory (Lifetime::owner only).
  std::chrono::milliseconds farewell_deadline{5'000};
  /// Where sockets are made for a moment; 0700, this user's.
  std::string socket_directory = PrivateDirectory::default_parent();
};

/// Collective over all ranks of all nodes; `size_bytes` and the transport's kind (within a node) must be equal
/// everywhere, else ErrorCode::mismatch or peer. `nodes`: by rank. On return every peer has mapped every other. If it
/// fails anywhere it throws everywhere, and nothing is left behind.
[[nodiscard]] SymmetricBuffer allocate_symmetric(Rendezvous& rendezvous, std::shared_ptr<MemoryTransport> transport,
                                                 std::span<const int> nodes, std::size_t size_bytes,
                                                 const AllocateOptions& options);

}  // namespace moelink

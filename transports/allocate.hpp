// Symmetric memory of ranks that meet through a rendezvous.
#pragma once

#include <memory>
#include <span>

#include "transports/memory.hpp"
#include "transports/peer_options.hpp"
#include "transports/rendezvous.hpp"
#include "transports/symmetric_state.hpp"

namespace moelink {

/// Collective over all ranks of all nodes; `size_bytes` and the transport's kind (within a node) must be equal
/// everywhere, else ErrorCode::mismatch or peer. `nodes`: by rank. On return every peer has mapped every other. If it
/// fails anywhere it throws everywhere, and nothing is left behind.
[[nodiscard]] std::unique_ptr<SymmetricBuffer::State> allocate_symmetric(Rendezvous& rendezvous,
                                                                         std::shared_ptr<MemoryTransport> transport,
                                                                         std::span<const int> nodes,
                                                                         std::size_t size_bytes,
                                                                         const PeerGroupOptions& options);

}  // namespace moelink

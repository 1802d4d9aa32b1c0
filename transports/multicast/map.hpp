// The multicast mapping of a symmetric buffer, made by its ranks together.
#pragma once

#if MOELINK_HAVE_CUDA

#include <string>

#include "transports/cuda/virtual_transport.hpp"
#include "transports/peer_options.hpp"
#include "transports/rendezvous.hpp"
#include "transports/symmetric_state.hpp"

namespace moelink {

/// One rank's part: its buffer, already mapped by its peers, and the transport that made it.
struct MulticastPart {
  SymmetricBuffer::State& state;
  const VirtualTransport& transport;
};

/// Collective over all ranks of all nodes; `part` is null on nodes that have no multicast. Sets Window::multicast on
/// every rank of every other node and returns "", or on none, and returns the words of the first rank that failed.
/// Throws only if the ranks cannot meet.
[[nodiscard]] std::string map_multicast(Rendezvous& rendezvous, const MulticastPart* part,
                                        const PeerGroupOptions& options);

}  // namespace moelink

#endif

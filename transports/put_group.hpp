// The collective steps around puts: connecting, and telling each other of regions.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "transports/put.hpp"
#include "transports/rendezvous.hpp"

namespace moelink {

/// Every rank's `mine`, in rank order; lengths may differ.
[[nodiscard]] std::vector<Bytes> gather_bytes(Rendezvous& rendezvous, std::span<const std::byte> mine);

/// Connects the transports of all ranks: on return every rank may put. If it fails on one rank, all ranks throw.
void connect_puts(Rendezvous& rendezvous, PutTransport& transport);

/// The regions that the ranks of `remotes` passed in the same call, by rank; null for all others. On return every rank
/// has imported them. Ranks without a region pass null and are null at the others.
[[nodiscard]] std::vector<std::unique_ptr<RemoteRegion>> share_region(Rendezvous& rendezvous, PutTransport& transport,
                                                                      const LocalRegion* mine,
                                                                      std::span<const int> remotes);

}  // namespace moelink

#include "transports/allocate.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "moelink/error.hpp"
#include "transports/descriptors/exchange.hpp"
#include "transports/gather.hpp"
#include "transports/symmetric_state.hpp"
#include "transports/together.hpp"

namespace moelink {
namespace {

/// What a rank tells the others about its part of a buffer.
struct Offer {
  std::size_t size_bytes = 0;
  std::array<std::byte, MemoryTicket::kBytes> ticket{};
  DescriptorAddress address;
};

void compare_sizes(std::span<const Offer> offers, std::size_t mine, int rank) {
  const auto other = std::ranges::find_if(offers, [&](const Offer& offer) { return offer.size_bytes != mine; });
  if (other != offers.end()) {
    throw Error(ErrorCode::mismatch, "ranks asked for different sizes of symmetric memory: rank " +
                                         std::to_string(rank) + " for " + std::to_string(mine) + " bytes, rank " +
                                         std::to_string(other - offers.begin()) + " for " +
                                         std::to_string(other->size_bytes));
  }
}

std::vector<int> peers_of(const SymmetricBuffer::State& state) {
  std::vector<int> peers;
  for (int rank = 0; rank < state.window().num_ranks; ++rank) {
    if (state.is_peer(rank)) {
      peers.push_back(rank);
    }
  }
  return peers;
}

/// Exchanges descriptors if the kind has them, then maps every peer.
void map_peers(SymmetricBuffer::State& state, DescriptorExchange* exchange, std::span<const Offer> offers) {
  const std::vector<int> peers = peers_of(state);
  std::vector<UniqueFd> descriptors(peers.size());
  if (exchange != nullptr) {
    std::vector<DescriptorExchange::Peer> addresses;
    for (const int peer : peers) {
      addresses.push_back({peer, offers[static_cast<std::size_t>(peer)].address});
    }
    descriptors = exchange->run(state.ticket().descriptor.get(), addresses);
  }
  for (std::size_t i = 0; i < peers.size(); ++i) {
    state.map_peer(peers[i], {offers[static_cast<std::size_t>(peers[i])].ticket, std::move(descriptors[i])});
  }
  state.finish();
}

/// After a failure that every rank knows of: nobody frees its part while another still maps it.
void take_back(Rendezvous& rendezvous, SymmetricBuffer::State& state) noexcept {
  state.unmap_peers();
  try {
    rendezvous.barrier();
  } catch (...) {  // the rendezvous is broken too, and with it the ranks that could have had a mapping
  }
}

}  // namespace

SymmetricBuffer allocate_symmetric(Rendezvous& rendezvous, std::shared_ptr<MemoryTransport> transport,
                                   std::span<const int> nodes, std::size_t size_bytes,
                                   const PeerGroupOptions& options) {
  const int rank = rendezvous.rank();
  std::unique_ptr<SymmetricBuffer::State> state;
  std::optional<DescriptorExchange> exchange;
  Offer mine{.size_bytes = size_bytes, .ticket = {}, .address = {}};
  together(rendezvous, "allocating symmetric memory", [&] {
    state = std::make_unique<SymmetricBuffer::State>(transport, rank, nodes, size_bytes, options.farewell_deadline);
    mine.ticket = state->ticket().bytes;
    if (transport->has_descriptors() && !peers_of(*state).empty()) {
      exchange.emplace(rank, socket_parent(options.socket_directory), options.deadline);
      mine.address = exchange->address();
    }
  });
  const std::vector<Offer> offers = gather<Offer>(rendezvous, std::span(&mine, 1));
  compare_sizes(offers, size_bytes, rank);
  try {
    together(rendezvous, "mapping its peers' memory",
             [&] { map_peers(*state, exchange.has_value() ? &*exchange : nullptr, offers); });
  } catch (...) {
    take_back(rendezvous, *state);
    throw;
  }
  return SymmetricBuffer(std::move(state));
}

}  // namespace moelink

#include "transports/allocate.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "moelink/error.hpp"
#include "transports/descriptors/exchange.hpp"
#include "transports/gather.hpp"
#include "transports/shm/memory.hpp"
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

/// The boards of those ranks whose memory ends with its owner; null at the others. Kinds of this sort exist within one
/// machine, where host memory can be shared too. Nodes may differ in their kinds, but not in the calls that all ranks
/// make together: whoever needs no board makes one for itself, and drops it.
std::unique_ptr<SymmetricBuffer::State> allocate_board(Rendezvous& rendezvous, Lifetime mine,
                                                       std::span<const int> nodes, const PeerGroupOptions& options) {
  const std::vector<Lifetime> lifetimes = gather<Lifetime>(rendezvous, std::span(&mine, 1));
  if (std::ranges::count(lifetimes, Lifetime::owner) == 0) {
    return nullptr;
  }
  std::vector<int> board_nodes(nodes.begin(), nodes.end());
  for (std::size_t rank = 0; rank < lifetimes.size(); ++rank) {
    if (lifetimes[rank] == Lifetime::counted) {
      board_nodes[rank] = -1 - static_cast<int>(rank);
    }
  }
  auto board = allocate_symmetric(rendezvous, make_shm_memory(), board_nodes, sizeof(std::uint64_t), options);
  return mine == Lifetime::owner ? std::move(board) : nullptr;
}

/// Exchanges descriptors if the kind has them, then maps every peer.
void map_peers(SymmetricBuffer::State& state, DescriptorExchange* exchange, int descriptor,
               std::span<const Offer> offers) {
  const std::vector<int> peers = peers_of(state);
  std::vector<UniqueFd> descriptors(peers.size());
  if (exchange != nullptr) {
    std::vector<DescriptorExchange::Peer> addresses;
    for (const int peer : peers) {
      addresses.push_back({peer, offers[static_cast<std::size_t>(peer)].address});
    }
    descriptors = exchange->run(descriptor, addresses, addresses);
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

std::unique_ptr<SymmetricBuffer::State> allocate_symmetric(Rendezvous& rendezvous,
                                                           std::shared_ptr<MemoryTransport> transport,
                                                           std::span<const int> nodes, std::size_t size_bytes,
                                                           const PeerGroupOptions& options) {
  const int rank = rendezvous.rank();
  auto board = allocate_board(rendezvous, transport->lifetime(), nodes, options);
  std::unique_ptr<SymmetricBuffer::State> state;
  MemoryTicket ticket;
  std::optional<DescriptorExchange> exchange;
  Offer mine{.size_bytes = size_bytes, .ticket = {}, .address = {}};
  together(rendezvous, "allocating symmetric memory", [&] {
    state = std::make_unique<SymmetricBuffer::State>(transport, rank, nodes, size_bytes, options.farewell_deadline);
    ticket = state->ticket();
    mine.ticket = ticket.bytes;
    if (transport->has_descriptors() && !peers_of(*state).empty()) {
      exchange.emplace(rank, socket_parent(options.socket_directory), options.deadline);
      mine.address = exchange->address();
    }
  });
  const std::vector<Offer> offers = gather<Offer>(rendezvous, std::span(&mine, 1));
  compare_sizes(offers, size_bytes, rank);
  try {
    together(rendezvous, "mapping its peers' memory",
             [&] { map_peers(*state, exchange.has_value() ? &*exchange : nullptr, ticket.descriptor.get(), offers); });
  } catch (...) {
    take_back(rendezvous, *state);
    throw;
  }
  state->set_farewell_board(std::move(board));
  return state;
}

}  // namespace moelink

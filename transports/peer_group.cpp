#include "transports/peer_group.hpp"

#include <algorithm>
#include <utility>

#include "moelink/error.hpp"
#include "transports/descriptors/exchange.hpp"
#include "transports/make_memory.hpp"
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

template <class T>
std::vector<T> gather(Rendezvous& rendezvous, std::span<const T> mine) {
  std::vector<T> all(static_cast<std::size_t>(rendezvous.size()) * mine.size());
  rendezvous.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  return all;
}

ReachFacts gather_facts(Rendezvous& rendezvous, Device device) {
  ReachFacts facts;
  RankPlace mine;
  together(rendezvous, "describing its device", [&] { mine = place_of(device); });
  facts.places = gather<RankPlace>(rendezvous, std::span(&mine, 1));
  std::vector<DeviceAccess> row;
  together(rendezvous, "looking at the devices of its node", [&] {
    for (int rank = 0; rank < rendezvous.size(); ++rank) {
      facts.nodes.push_back(rendezvous.node_of(rank));
      row.push_back(device_access(mine, facts.places[static_cast<std::size_t>(rank)]));
    }
  });
  facts.access = gather<DeviceAccess>(rendezvous, row);
  return facts;
}

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

PeerGroup::PeerGroup(Rendezvous& rendezvous, Device device, PeerGroupOptions options)
    : rendezvous_(rendezvous), options_(std::move(options)), facts_(gather_facts(rendezvous, device)) {
  // Every rank looks at every node, so that all of them throw or none.
  for (const int node : facts_.nodes) {
    MemoryChoice choice = choose_memory(facts_, node, options_.only);
    if (!choice.kind.has_value()) {
      throw Error(ErrorCode::unsupported, "the ranks of node " + std::to_string(node) +
                                              " cannot map each other's memory; no kind serves every pair:\n" +
                                              choice.report());
    }
    if (node == rendezvous.node_of(rendezvous.rank())) {
      choice_ = std::move(choice);
    }
  }
  together(rendezvous, "opening its memory transport", [&] { transport_ = make_memory(*choice_.kind, device); });
}

PeerGroup::~PeerGroup() = default;
PeerGroup::PeerGroup(PeerGroup&&) noexcept = default;

SymmetricBuffer PeerGroup::allocate(std::size_t size_bytes) {
  const int rank = rendezvous_.rank();
  std::unique_ptr<SymmetricBuffer::State> state;
  std::optional<DescriptorExchange> exchange;
  Offer mine{.size_bytes = size_bytes};
  together(rendezvous_, "allocating symmetric memory", [&] {
    state = std::make_unique<SymmetricBuffer::State>(transport_, rank, facts_.nodes, size_bytes,
                                                     options_.farewell_deadline);
    mine.ticket = state->ticket().bytes;
    if (transport_->has_descriptors() && !peers_of(*state).empty()) {
      exchange.emplace(rank, options_.socket_directory, options_.deadline);
      mine.address = exchange->address();
    }
  });
  const std::vector<Offer> offers = gather<Offer>(rendezvous_, std::span(&mine, 1));
  compare_sizes(offers, size_bytes, rank);
  try {
    together(rendezvous_, "mapping its peers' memory",
             [&] { map_peers(*state, exchange.has_value() ? &*exchange : nullptr, offers); });
  } catch (...) {
    take_back(rendezvous_, *state);
    throw;
  }
  return SymmetricBuffer(std::move(state));
}

}  // namespace moelink

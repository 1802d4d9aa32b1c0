#include "transports/peer_group.hpp"

#include <utility>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "moelink/error.hpp"
#include "transports/allocate.hpp"
#include "transports/gather.hpp"
#include "transports/make_memory.hpp"
#include "transports/multicast/decision.hpp"
#include "transports/multicast/map.hpp"
#include "transports/together.hpp"

namespace moelink {
namespace {

ReachFacts gather_facts(Rendezvous& rendezvous, Device device, const PeerGroupOptions& options) {
  ReachFacts facts;
  RankPlace mine;
  together(rendezvous, "describing its device", [&] {
    mine = place_of(device);
    mine.allows_multicast = options.multicast.value_or(Environment::get().nvls);
  });
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

}  // namespace

PeerGroup::PeerGroup(Rendezvous& rendezvous, Device device, PeerGroupOptions options)
    : rendezvous_(rendezvous), options_(std::move(options)), facts_(gather_facts(rendezvous, device, options_)) {
  // Every rank looks at every node, so that all of them throw or none.
  for (const int node : facts_.nodes) {
    MemoryChoice choice = choose_memory(facts_, node, options_.only);
    if (!choice.kind.has_value()) {
      throw Error(ErrorCode::unsupported, "the ranks of node " + std::to_string(node) +
                                              " cannot map each other's memory; no kind serves every pair:\n" +
                                              choice.report());
    }
    if (node == rendezvous.node_of(rendezvous.rank())) {
      why_no_multicast_ = moelink::why_no_multicast(facts_, node, *choice.kind);
      choice_ = std::move(choice);
    }
  }
  together(rendezvous, "opening its memory transport", [&] { transport_ = make_memory(*choice_.kind, device); });
}

PeerGroup::~PeerGroup() = default;
PeerGroup::PeerGroup(PeerGroup&&) noexcept = default;

SymmetricBuffer PeerGroup::allocate(std::size_t size_bytes, [[maybe_unused]] Multicast multicast) {
  std::unique_ptr<SymmetricBuffer::State> state =
      allocate_symmetric(rendezvous_, transport_, facts_.nodes, size_bytes, options_);
#if MOELINK_HAVE_CUDA
  if (multicast == Multicast::if_possible) {
    add_multicast(*state);
  }
#endif
  return SymmetricBuffer(std::move(state));
}

#if MOELINK_HAVE_CUDA
void PeerGroup::add_multicast(SymmetricBuffer::State& state) {
  std::optional<MulticastPart> part;
  if (why_no_multicast_.empty()) {
    part.emplace(MulticastPart{state, dynamic_cast<const VirtualTransport&>(*transport_)});
  }
  const std::string reason = map_multicast(rendezvous_, part.has_value() ? &*part : nullptr, options_);
  if (part.has_value() && !reason.empty()) {
    warn_once("NVLS is not used, though the devices support it: " + reason);
  }
}
#endif

}  // namespace moelink

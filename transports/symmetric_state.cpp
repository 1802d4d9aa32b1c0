#include "transports/symmetric_state.hpp"

#include <mutex>
#include <utility>

#include "base/log.hpp"
#include "transports/farewell.hpp"

namespace moelink {
namespace {

/// What a peer may still write, and would be given to somebody else: kept until the process ends.
void keep_forever(std::shared_ptr<void> memory) {
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  kept->push_back(std::move(memory));
}

}  // namespace

SymmetricBuffer::State::State(std::shared_ptr<MemoryTransport> transport, int rank, std::span<const int> nodes,
                              std::size_t size_bytes, std::chrono::milliseconds farewell_deadline)
    : transport_(std::move(transport)),
      layout_(symmetric_layout(size_bytes, static_cast<int>(nodes.size()))),
      nodes_(nodes.begin(), nodes.end()),
      farewell_deadline_(farewell_deadline),
      bases_(nodes.size()),
      local_(transport_->allocate(layout_.total_bytes)),
      peers_(nodes.size()) {
  window_.rank = rank;
  window_.num_ranks = static_cast<i32>(nodes.size());
  window_.size_bytes = static_cast<i64>(size_bytes);
  set_base(rank, local_->data());
}

bool SymmetricBuffer::State::is_peer(int rank) const {
  return rank != window_.rank &&
         nodes_[static_cast<std::size_t>(rank)] == nodes_[static_cast<std::size_t>(window_.rank)];
}

void SymmetricBuffer::State::set_base(int rank, std::byte* base) {
  bases_[static_cast<std::size_t>(rank)] = reinterpret_cast<u8*>(base);
  if (rank < kMaxInlineRanks) {
    window_.inline_bases[rank] = reinterpret_cast<u8*>(base);
  }
}

void SymmetricBuffer::State::map_peer(int peer, MemoryTicket ticket) {
  std::shared_ptr<MappedMemory> memory = transport_->map(std::move(ticket));
  set_base(peer, memory->data());
  peers_[static_cast<std::size_t>(peer)] = std::move(memory);
}

void SymmetricBuffer::State::finish() {
  if (window_.num_ranks > kMaxInlineRanks) {
    local_->store(layout_.table_offset, std::as_bytes(std::span(bases_)));
    window_.table = reinterpret_cast<u8* const*>(local_->data() + layout_.table_offset);
  }
  finished_ = true;
}

void SymmetricBuffer::State::unmap_peers() {
  finished_ = false;
  for (auto& peer : peers_) {
    peer.reset();
  }
}

void SymmetricBuffer::State::set_multicast(std::shared_ptr<void> binding, std::shared_ptr<void> mapping,
                                           std::byte* base) {
  multicast_binding_ = std::move(binding);
  multicast_mapping_ = std::move(mapping);
  window_.multicast = reinterpret_cast<u8*>(base);
}

/// True once no peer maps what ends with its owner.
bool SymmetricBuffer::State::part_from_peers() {
  multicast_mapping_.reset();
  if (transport_->lifetime() == Lifetime::owner) {
    peers_.assign(peers_.size(), nullptr);
  }
  const State& words = board_ != nullptr ? *board_ : *this;
  const auto patience = abandoned_ ? std::chrono::milliseconds(0) : farewell_deadline_;
  say_farewell(window_.rank, words.peers_, words.layout_.farewell_offset);
  return await_farewells(words.peers_, *words.local_, words.layout_.farewell_offset, Deadline::after(patience));
}

SymmetricBuffer::State::~State() {
  // NOTE [who may still write]: docs/symmetric-memory.md. Where the memory's life is counted, a peer's mapping keeps
  // it, and nobody has to wait. Otherwise wait for the peers, and keep the memory if one of them does not answer.
  const bool ends_with_owner = transport_->lifetime() == Lifetime::owner || multicast_binding_ != nullptr;
  if (ends_with_owner && finished_ && !part_from_peers()) {
    warn_once("a peer did not say that it is done with this rank's memory; the memory is kept until the process ends");
    keep_forever(std::move(multicast_binding_));
    keep_forever(std::move(local_));
  }
}

}  // namespace moelink

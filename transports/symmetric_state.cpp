#include "transports/symmetric_state.hpp"

#include <mutex>
#include <utility>

#include "transports/farewell.hpp"

namespace moelink {
namespace {

/// Memory that a peer may still write and that its kind would give to somebody else: kept until the process ends.
void keep_forever(std::shared_ptr<LocalMemory> memory) {
  static auto* const kept = new std::vector<std::shared_ptr<LocalMemory>>;
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

SymmetricBuffer::State::~State() {
  // NOTE [who may still write]: docs/symmetric-memory.md. Where the memory's life is counted, a peer's mapping keeps
  // it, and nobody has to wait. Otherwise wait for the peers, and keep the memory if one of them does not answer.
  if (transport_->lifetime() == Lifetime::counted || !finished_) {
    return;
  }
  say_farewell(window_.rank, peers_, layout_.farewell_offset);
  const auto patience = abandoned_ ? std::chrono::milliseconds(0) : farewell_deadline_;
  if (!await_farewells(peers_, *local_, layout_.farewell_offset, Deadline::after(patience))) {
    keep_forever(std::move(local_));
  }
}

}  // namespace moelink

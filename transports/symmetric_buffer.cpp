#include "transports/symmetric_buffer.hpp"

#include <utility>

#include "moelink/error.hpp"
#include "transports/symmetric_state.hpp"
#include "transports/threads/memory.hpp"

namespace moelink {

SymmetricBuffer::SymmetricBuffer() noexcept = default;
SymmetricBuffer::SymmetricBuffer(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
SymmetricBuffer::~SymmetricBuffer() = default;
SymmetricBuffer::SymmetricBuffer(SymmetricBuffer&&) noexcept = default;
SymmetricBuffer& SymmetricBuffer::operator=(SymmetricBuffer&&) noexcept = default;

const Window& SymmetricBuffer::window() const noexcept {
  static constexpr Window kNothing;
  return state_ != nullptr ? state_->window() : kNothing;
}

std::byte* SymmetricBuffer::data() const noexcept { return state_ != nullptr ? state_->local().data() : nullptr; }

std::size_t SymmetricBuffer::size_bytes() const noexcept { return static_cast<std::size_t>(window().size_bytes); }

std::size_t SymmetricBuffer::memory_bytes() const noexcept {
  return state_ != nullptr ? state_->local().size_bytes() : 0;
}

MemoryKind SymmetricBuffer::kind() const noexcept {
  return state_ != nullptr ? state_->transport().kind() : MemoryKind::threads;
}

void SymmetricBuffer::abandon() noexcept {
  if (state_ != nullptr) {
    state_->abandon();
  }
}

std::vector<SymmetricBuffer> allocate_in_process(std::span<const InProcessRank> ranks, std::size_t size_bytes) {
  if (ranks.empty()) {
    throw Error(ErrorCode::invalid_argument, "symmetric memory for 0 ranks was asked for; expected 1 or more");
  }
  std::vector<int> nodes;
  for (const InProcessRank& rank : ranks) {
    nodes.push_back(rank.node);
  }
  // Mappings here share the owner's life, so nobody ever waits for a farewell.
  constexpr std::chrono::milliseconds kNoFarewell{0};
  std::vector<std::unique_ptr<SymmetricBuffer::State>> states;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    states.push_back(std::make_unique<SymmetricBuffer::State>(make_threads_memory(ranks[rank].device),
                                                              static_cast<int>(rank), nodes, size_bytes, kNoFarewell));
  }
  std::vector<SymmetricBuffer> buffers;
  for (auto& state : states) {
    for (std::size_t peer = 0; peer < states.size(); ++peer) {
      if (state->is_peer(static_cast<int>(peer))) {
        state->map_peer(static_cast<int>(peer), states[peer]->ticket());
      }
    }
    state->finish();
  }
  for (auto& state : states) {
    buffers.emplace_back(std::move(state));
  }
  return buffers;
}

}  // namespace moelink

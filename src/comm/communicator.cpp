#include "moelink/communicator.hpp"

#include "comm/communicator_state.hpp"

namespace moelink {

Communicator Communicator::single(Device device) {
  return Communicator(std::make_shared<State>(State{.rank = 0, .size = 1, .device = device}));
}

int Communicator::rank() const noexcept { return state_->rank; }
int Communicator::size() const noexcept { return state_->size; }
Device Communicator::device() const noexcept { return state_->device; }

}  // namespace moelink

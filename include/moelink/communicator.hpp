// Ranks: who takes part, and on which device each of them runs.
#pragma once

#include <memory>
#include <utility>

#include "moelink/device.hpp"
#include "moelink/export.hpp"

namespace moelink {

/// One rank's membership of a group of ranks. Cheap to copy (shared state).
class MOELINK_EXPORT Communicator {
 public:
  /// A group of one.
  [[nodiscard]] static Communicator single(Device device = Device::best());

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] Device device() const noexcept;

  struct State;  // src/comm
  [[nodiscard]] State& state() const noexcept { return *state_; }

 private:
  explicit Communicator(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace moelink

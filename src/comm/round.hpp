// One collective after another, as pure bookkeeping: who has arrived with what, who cannot come. The thread group keeps
// one under its lock, the hub of the TCP bootstrap one in its event loop.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "comm/fault_board.hpp"

namespace moelink {

/// Every function that returns a fault has found what ends the group.
class Round {
 public:
  explicit Round(int size);

  /// `rank` arrives at the collective `what` and is willing to wait for `patience`.
  [[nodiscard]] std::optional<GroupFault> enter(int rank, std::string_view what, Bytes contribution,
                                                std::chrono::milliseconds patience);
  /// An empty reason means that `rank` takes part again.
  [[nodiscard]] std::optional<GroupFault> set_away(int rank, std::string why);

  /// Somebody has arrived.
  [[nodiscard]] bool open() const noexcept { return num_arrived_ > 0; }
  [[nodiscard]] bool complete() const noexcept { return num_arrived_ == size(); }
  /// The contributions in rank order; the next round begins. Only when complete.
  [[nodiscard]] std::vector<Bytes> finish();

  /// When the first of those who wait loses patience. Only when open.
  [[nodiscard]] Deadline deadline() const noexcept { return deadline_; }
  /// What to say then.
  [[nodiscard]] GroupFault expired() const;

 private:
  [[nodiscard]] int size() const noexcept { return static_cast<int>(arrived_.size()); }
  [[nodiscard]] GroupFault away(int rank) const;

  std::string what_;
  int first_ = 0;  // who opened the round
  int num_arrived_ = 0;
  Deadline deadline_{Deadline::Clock::time_point::max()};
  std::chrono::milliseconds patience_{0};  // of whoever set the deadline
  std::vector<bool> arrived_;
  std::vector<Bytes> contributions_;
  std::vector<std::string> why_away_;  // empty: present
};

}  // namespace moelink

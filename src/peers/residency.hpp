// The ledger of blocks that wait. Ranks of one process that share a GPU hang if one rank's waiting blocks fill the SMs
// that another needs to answer; so what may wait at the same time must fit on the device, or construction fails.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "moelink/communicator.hpp"

namespace moelink {

/// What one kernel that waits may occupy.
struct ResidencyNeed {
  int blocks = 0;         ///< its largest grid
  int blocks_per_sm = 1;  ///< as many as fit on one SM
};

/// One object's entry. Objects of one rank take turns on its stream, so a rank counts with its largest object; ranks
/// add up. Objects of one rank that are in flight together must share a budget between them (max_blocks of their
/// configurations).
class ResidencyClaim {
 public:
  ResidencyClaim() = default;
  /// For an object with these kernels, of which one runs at a time. Throws ErrorCode::capacity, naming what is held and
  /// what was asked for. The host holds any number.
  ResidencyClaim(const Communicator& communicator, const std::string& what,
                 std::initializer_list<ResidencyNeed> kernels);

 private:
  std::shared_ptr<void> entry_;
};

/// The most blocks a rank may have waiting, given how many ranks of its process share its device: its share of the SMs.
[[nodiscard]] int fair_share_of_blocks(const Communicator& communicator, int blocks_per_sm);

}  // namespace moelink

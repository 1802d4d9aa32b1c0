// A communicator as the rendezvous that symmetric memory needs.
#pragma once

#include <string>
#include <vector>

#include "moelink/communicator.hpp"
#include "transports/rendezvous.hpp"

namespace moelink {

class CommunicatorRendezvous final : public Rendezvous {
 public:
  /// `what` names the collectives in errors: "AllReduce". `nodes`: of each rank; empty: as the communicator's topology
  /// has them.
  CommunicatorRendezvous(Communicator communicator, std::string what, std::vector<int> nodes = {});

  [[nodiscard]] int rank() const noexcept override { return communicator_.rank(); }
  [[nodiscard]] int size() const noexcept override { return communicator_.size(); }
  [[nodiscard]] int node_of(int rank) const override {
    return nodes_.empty() ? communicator_.topology().node_of(rank) : nodes_.at(static_cast<std::size_t>(rank));
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void barrier() override;
  void give_up(std::string_view words) noexcept override;

 private:
  Communicator communicator_;
  std::string what_;
  std::vector<int> nodes_;
};

}  // namespace moelink

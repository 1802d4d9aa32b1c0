// What the copies of one rank's Communicator share, and how it comes to be.
#pragma once

#include <chrono>
#include <memory>

#include "comm/bootstrap.hpp"
#include "moelink/communicator.hpp"

namespace moelink {

struct Communicator::State {
  std::unique_ptr<Bootstrap> bootstrap;
  Device device;
  std::chrono::milliseconds deadline;
  Topology topology;
};

/// Which device a rank takes: `device`, else CUDA device (rank among those of its node) mod devices, else the host.
struct DeviceChoice {
  std::optional<Device> device;
  std::optional<int> local_rank;  ///< as the launcher says; else the ranks count themselves
};

/// Collective over the ranks of `bootstrap`: compares versions and learns the topology. `node` replaces this machine's
/// identity unless empty.
[[nodiscard]] std::shared_ptr<Communicator::State> make_communicator_state(std::unique_ptr<Bootstrap> bootstrap,
                                                                           const DeviceChoice& choice,
                                                                           std::string_view node,
                                                                           std::chrono::milliseconds deadline);

/// `chosen`, else MOELINK_DEADLINE, else 60 s. Throws invalid_argument if negative.
[[nodiscard]] std::chrono::milliseconds effective_deadline(std::chrono::milliseconds chosen);

}  // namespace moelink

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

/// Collective over the ranks of `bootstrap`: compares versions and learns the topology. `node` replaces this machine's
/// identity unless empty.
[[nodiscard]] std::shared_ptr<Communicator::State> make_communicator_state(std::unique_ptr<Bootstrap> bootstrap,
                                                                           Device device, std::string_view node,
                                                                           std::chrono::milliseconds deadline);

/// `chosen`, else MOELINK_DEADLINE, else 60 s. Throws invalid_argument if negative.
[[nodiscard]] std::chrono::milliseconds effective_deadline(std::chrono::milliseconds chosen);

}  // namespace moelink

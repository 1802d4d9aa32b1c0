// What the copies of one rank's Communicator share, and how it comes to be.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "comm/bootstrap.hpp"
#include "moelink/communicator.hpp"

namespace moelink {

class PutProxy;

struct Communicator::State {
  std::unique_ptr<Bootstrap> bootstrap;
  Device device;
  std::chrono::milliseconds deadline;
  Topology topology;
  /// By the transport that was asked for (peers/shared_put_proxy.hpp). They tell the bootstrap of failures, and go
  /// first.
  struct SharedPutProxy {
    std::shared_ptr<PutProxy> proxy;
    FaultBoard::Subscription faults;
  };
  std::map<std::string, SharedPutProxy> put_proxies{};
};

/// Which device a rank takes: `device`, else CUDA device (rank among those of its node) mod devices, else the host.
struct DeviceChoice {
  std::optional<Device> device;
  std::optional<int> local_rank;  ///< as the launcher says; else the ranks count themselves
};

/// Which node a rank is on: `name` replaces this machine's identity unless empty; with `ranks_per_node` every so many
/// ranks pretend to be a node of their own.
struct NodeChoice {
  std::string name{};
  int ranks_per_node = 0;
};
/// As the environment says; `ranks_per_node` wins unless 0. Throws invalid_argument if negative.
[[nodiscard]] NodeChoice effective_node(int ranks_per_node);

/// Collective over the ranks of `bootstrap`: compares versions and learns the topology.
[[nodiscard]] std::shared_ptr<Communicator::State> make_communicator_state(std::unique_ptr<Bootstrap> bootstrap,
                                                                           const DeviceChoice& choice,
                                                                           const NodeChoice& node,
                                                                           std::chrono::milliseconds deadline);

/// `chosen`, else MOELINK_DEADLINE, else 60 s. Throws invalid_argument if negative.
[[nodiscard]] std::chrono::milliseconds effective_deadline(std::chrono::milliseconds chosen);

}  // namespace moelink

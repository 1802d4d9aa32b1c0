// Where the ranks are and who can reach whose memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moelink/device.hpp"
#include "moelink/export.hpp"

namespace moelink {

/// How one rank reaches the memory of another.
enum class Link : std::uint8_t {
  self,         ///< the same rank
  process,      ///< host memory of the same process
  shared,       ///< host memory of another process on the same node
  same_device,  ///< two ranks on one GPU
  nvlink,       ///< another GPU, with native atomics between the two
  pcie,         ///< another GPU, peer access without native atomics
  hidden,       ///< a GPU of the same node that this process cannot see (CUDA_VISIBLE_DEVICES); mapping will be tried
  none,         ///< no loads and stores: another node, or no peer access
};
[[nodiscard]] MOELINK_EXPORT std::string_view name_of(Link link) noexcept;

struct RankInfo {
  int rank = 0;
  std::string host;     ///< host name
  std::string node_id;  ///< boot id and host name, or MOELINK_NODE
  int node = 0;         ///< ranks with equal numbers are on one node; numbered from 0 by first rank
  std::int64_t process_id = 0;
  std::uint64_t process_token = 0;  ///< equal exactly for ranks of one process
  Device device = Device::host();
  std::string device_name;  ///< "NVIDIA H200"; of the host, its number of processors
  std::string pci_bus_id;   ///< "0000:3b:00.0"; empty for the host
  std::string uuid;         ///< hexadecimal; empty for the host
};

/// The same on every rank.
class MOELINK_EXPORT Topology {
 public:
  Topology(std::vector<RankInfo> ranks, std::vector<std::vector<Link>> links);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int num_nodes() const noexcept { return num_nodes_; }
  /// Throws invalid_argument unless 0 <= rank < size(), as all of these do.
  [[nodiscard]] const RankInfo& rank(int rank) const;
  [[nodiscard]] const std::vector<RankInfo>& ranks() const noexcept { return ranks_; }

  [[nodiscard]] int node_of(int rank) const { return this->rank(rank).node; }
  [[nodiscard]] std::vector<int> ranks_of_node(int node) const;
  [[nodiscard]] bool same_process(int a, int b) const;
  /// How `from` reaches the memory of `to`.
  [[nodiscard]] Link link(int from, int to) const;
  [[nodiscard]] bool can_map(int from, int to) const { return link(from, to) != Link::none; }

  /// Tables of ranks and links, for people.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<RankInfo> ranks_;
  std::vector<std::vector<Link>> links_;
  int num_nodes_ = 0;
};

/// Something that can move bytes between ranks, as this process finds it.
struct TransportStatus {
  std::string name;  ///< "threads", "shm", "cuda", "verbs", "ucx", "nccl"
  bool usable = false;
  std::string reason;  ///< why not; if usable, what was found
};

/// Every kind of transport that the library knows, looked for now: libraries are loaded, devices counted.
[[nodiscard]] MOELINK_EXPORT std::vector<TransportStatus> probe_transports();

}  // namespace moelink

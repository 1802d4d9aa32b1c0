// Which kind of memory the ranks of a node use, and why not another: a pure function of what the ranks published.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transports/memory.hpp"
#include "transports/place.hpp"

namespace moelink {

/// Whether the device of one rank can load and store the memory of another's device.
enum class DeviceAccess : std::uint8_t {
  none,       ///< the driver says that it cannot
  same,       ///< one device, or no device on either side
  direct,     ///< over NVLink or PCIe
  invisible,  ///< the other device is on this machine but hidden from this process
  elsewhere,  ///< on another machine: only a fabric can tell
};

/// What every rank knows after two all-gathers.
struct ReachFacts {
  std::vector<RankPlace> places;     ///< by rank
  std::vector<int> nodes;            ///< by rank
  std::vector<DeviceAccess> access;  ///< [from * ranks + to]

  [[nodiscard]] DeviceAccess access_of(int from, int to) const {
    return access[static_cast<std::size_t>(from) * places.size() + static_cast<std::size_t>(to)];
  }
};

/// Why rank `from` cannot map memory of this kind that rank `to` owns; empty if it can.
[[nodiscard]] std::string why_not(MemoryKind kind, const ReachFacts& facts, int from, int to);

/// The choice of one node.
struct MemoryChoice {
  std::optional<MemoryKind> kind;                    ///< none: no kind serves every pair
  std::array<std::string, kNumMemoryKinds> reasons;  ///< by kind: why not; empty where it is possible

  /// One line per kind: "vmm     no: rank 0 cannot map rank 1: ...".
  [[nodiscard]] std::string report() const;
};

/// The first kind, in the order of MemoryKind, by which every rank of `node` can map every other. `only`: consider no
/// other kind (for tests and troubleshooting).
[[nodiscard]] MemoryChoice choose_memory(const ReachFacts& facts, int node,
                                         std::optional<MemoryKind> only = std::nullopt);

}  // namespace moelink

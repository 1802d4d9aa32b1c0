// Where a rank runs, as far as mapping memory goes.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/cuda_driver.hpp"
#include "moelink/device.hpp"
#include "transports/memory.hpp"

namespace moelink {

/// Facts that a rank publishes. Travels between ranks as bytes.
struct RankPlace {
  std::uint64_t process = 0;         ///< process_token()
  std::array<char, 40> machine{};    ///< boot id
  std::int32_t device_ordinal = -1;  ///< in its own process; -1: host
  std::array<std::uint8_t, 16> device_uuid{};
  std::uint8_t device_kinds = 0;  ///< bit per MemoryKind that the device and its driver support
  bool has_multicast = false;     ///< the device supports multicast objects (NVLS)
  bool allows_multicast = false;  ///< its user did not forbid it
  bool has_fabric = false;        ///< the device is a ready member of an NVLink fabric
  std::array<std::uint8_t, 16> fabric_cluster{};
  std::uint32_t fabric_clique = 0;

  [[nodiscard]] constexpr bool is_host() const noexcept { return device_ordinal < 0; }
  [[nodiscard]] constexpr bool supports(MemoryKind kind) const noexcept {
    return ((device_kinds >> static_cast<unsigned>(kind)) & 1U) != 0;
  }
};

/// This process's facts about a rank on `device`. Throws ErrorCode::unsupported if the device cannot be used.
[[nodiscard]] RankPlace place_of(Device device);

/// What the ranks of one node have in common: "fabric <cluster> clique <n>" on a multi-node NVLink fabric, else
/// "machine <boot id>". A bootstrap compares it (or the user's override) to say which ranks share a node.
[[nodiscard]] std::string node_key(const RankPlace& place);

}  // namespace moelink

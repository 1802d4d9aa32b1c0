// Which NIC, which port, which GID: chosen from what the devices report.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"

namespace moelink {

enum class LinkLayer : std::uint8_t { infiniband, ethernet };

/// One entry of a port's GID table.
struct GidEntry {
  enum class Type : std::uint8_t { infiniband, roce_v1, roce_v2 };
  int index = 0;
  Type type = Type::infiniband;
  std::array<std::uint8_t, 16> bytes{};
};

/// One port of one device, as found.
struct PortInfo {
  std::string device{};    ///< "mlx5_0"
  int port = 1;            ///< from 1
  std::string pci_path{};  ///< where it hangs: "/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.0"; empty if unknown
  LinkLayer link_layer = LinkLayer::infiniband;
  bool active = false;
  std::uint16_t lid = 0;
  int mtu = 1;  ///< enum ibv_mtu
  std::vector<GidEntry> gids{};
};

/// What the user decided (base/environment.hpp, MOELINK_VERBS_*).
struct VerbsSettings {
  std::string library{};  ///< path; empty: libibverbs.so.1
  std::string devices{};  ///< "mlx5_0:1,mlx5_3"; empty: the nearest
  int gid_index = -1;     ///< -1: chosen
  int service_level = 0;
  int traffic_class = 0;
  std::chrono::milliseconds timeout{67};  ///< until a put that is not acknowledged is sent again
  bool relaxed_ordering = true;

  [[nodiscard]] static VerbsSettings from(const Environment& environment);
};

/// Most NICs that one rank uses together.
inline constexpr int kMaxLanes = 8;

/// The ports that a rank uses together, in order: those named by the user; else of the active ones the nearest to
/// `near` (a PCI path; empty: all are), of one link layer. Throws ErrorCode::unsupported if there is none, naming every
/// port and what is the matter with it; invalid_argument if a named one does not exist or is down.
[[nodiscard]] std::vector<PortInfo> choose_ports(const std::vector<PortInfo>& ports, const VerbsSettings& settings,
                                                 const std::string& near);

/// The entry to use: the user's; InfiniBand: the first; Ethernet: RoCE v2 before v1, and there IPv4 before global IPv6
/// before link-local. Throws ErrorCode::unsupported or invalid_argument, naming the port.
[[nodiscard]] GidEntry choose_gid(const PortInfo& port, int wanted_index);

/// As queue pairs take a timeout: the smallest n for which 4.096 us * 2^n is no shorter.
[[nodiscard]] int timeout_exponent(std::chrono::milliseconds timeout);

/// "mlx5_0 port 1, RoCE v2, GID 3".
[[nodiscard]] std::string describe(const PortInfo& port, const GidEntry& gid);

}  // namespace moelink

#include "transports/verbs/port.hpp"

#include <algorithm>
#include <string_view>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// How many bridges two devices share.
std::size_t nearness(std::string_view a, std::string_view b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(std::count(a.begin(), end, '/'));
}

std::string name_of_port(const PortInfo& port) { return text(port.device, " port ", port.port); }

std::string list_of(const std::vector<PortInfo>& ports) {
  std::string list;
  for (const PortInfo& port : ports) {
    list += text(list.empty() ? "" : ", ", name_of_port(port), port.active ? " (active)" : " (down)");
  }
  return list.empty() ? "none" : list;
}

std::vector<PortInfo> named_ports(const std::vector<PortInfo>& ports, std::string_view names) {
  std::vector<PortInfo> chosen;
  while (!names.empty()) {
    const std::size_t comma = std::min(names.find(','), names.size());
    const std::string_view name = names.substr(0, comma);
    names.remove_prefix(std::min(comma + 1, names.size()));
    const auto matches = [&](const PortInfo& port) {
      return name == text(port.device, ":", port.port) || (name == port.device && port.active);
    };
    const auto found = std::ranges::find_if(ports, matches);
    if (found == ports.end() || !found->active) {
      throw Error(ErrorCode::invalid_argument,
                  text("MOELINK_VERBS_DEVICES names '", name, "', which is no active port of this machine; it has ",
                       list_of(ports)));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

std::vector<PortInfo> nearest_ports(const std::vector<PortInfo>& ports, const std::string& near) {
  std::vector<PortInfo> chosen;
  std::size_t best = 0;
  for (const PortInfo& port : ports) {
    if (!port.active) continue;
    const std::size_t nearness_here = near.empty() ? 0 : nearness(port.pci_path, near);
    if (nearness_here > best) {
      chosen.clear();
      best = nearness_here;
    }
    if (nearness_here == best && (chosen.empty() || chosen.front().link_layer == port.link_layer)) {
      chosen.push_back(port);
    }
  }
  return chosen;
}

/// Smaller is better.
int gid_order(const GidEntry& gid) {
  const auto& bytes = gid.bytes;
  const bool is_ipv4 = std::all_of(bytes.begin(), bytes.begin() + 10, [](auto byte) { return byte == 0; }) &&
                       bytes[10] == 0xff && bytes[11] == 0xff;
  const bool is_link_local = bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
  return (gid.type == GidEntry::Type::roce_v2 ? 0 : 10) + (is_ipv4 ? 0 : is_link_local ? 2 : 1);
}

}  // namespace

VerbsSettings VerbsSettings::from(const Environment& environment) {
  return {.library = environment.verbs_library,
          .devices = environment.verbs_devices,
          .gid_index = environment.verbs_gid_index,
          .service_level = environment.verbs_service_level,
          .traffic_class = environment.verbs_traffic_class,
          .timeout = environment.verbs_timeout,
          .relaxed_ordering = environment.verbs_relaxed_ordering};
}

std::vector<PortInfo> choose_ports(const std::vector<PortInfo>& ports, const VerbsSettings& settings,
                                   const std::string& near) {
  std::vector<PortInfo> chosen =
      settings.devices.empty() ? nearest_ports(ports, near) : named_ports(ports, settings.devices);
  if (chosen.empty()) {
    throw Error(ErrorCode::unsupported, text("no RDMA port is active here; there are: ", list_of(ports),
                                             ". Bring a link up (`ip link`, `rdma link`), or use the ucx transport"));
  }
  if (chosen.size() > static_cast<std::size_t>(kMaxLanes)) chosen.resize(static_cast<std::size_t>(kMaxLanes));
  return chosen;
}

GidEntry choose_gid(const PortInfo& port, int wanted_index) {
  if (wanted_index >= 0) {
    const auto found = std::ranges::find(port.gids, wanted_index, &GidEntry::index);
    if (found == port.gids.end()) {
      throw Error(ErrorCode::invalid_argument,
                  text("MOELINK_VERBS_GID=", wanted_index, " is no entry of ", name_of_port(port), ", which has ",
                       port.gids.size(), "; unset it to have one chosen"));
    }
    return *found;
  }
  if (port.gids.empty()) {
    throw Error(ErrorCode::unsupported, text(name_of_port(port), " has no GID; give its network interface an address"));
  }
  if (port.link_layer == LinkLayer::infiniband) return port.gids.front();
  return *std::ranges::min_element(port.gids, {}, gid_order);
}

int timeout_exponent(std::chrono::milliseconds timeout) {
  constexpr int kLargest = 31;
  const double wanted_us = std::chrono::duration<double, std::micro>(timeout).count();
  int exponent = 1;  // zero would be for ever
  for (double us = 4.096 * 2; us < wanted_us && exponent < kLargest; us *= 2) ++exponent;
  return exponent;
}

std::string describe(const PortInfo& port, const GidEntry& gid) {
  const char* kind = port.link_layer == LinkLayer::infiniband ? "InfiniBand"
                     : gid.type == GidEntry::Type::roce_v2    ? "RoCE v2"
                                                              : "RoCE v1";
  return text(name_of_port(port), ", ", kind, ", GID ", gid.index);
}

}  // namespace moelink

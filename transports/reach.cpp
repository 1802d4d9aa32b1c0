#include "transports/reach.hpp"

#include <string_view>

namespace moelink {
namespace {

std::string device_name(const RankPlace& place) {
  return place.is_host() ? "the host" : "cuda:" + std::to_string(place.device_ordinal);
}

bool same_machine(const RankPlace& a, const RankPlace& b) {
  return std::string_view(a.machine.data()) == std::string_view(b.machine.data());
}

std::string why_no_device_access(DeviceAccess access, const RankPlace& here, const RankPlace& there) {
  switch (access) {
    case DeviceAccess::same:
    case DeviceAccess::direct:
      return "";
    case DeviceAccess::none:
      return "the driver allows no peer access from " + device_name(here) + " to " + device_name(there);
    case DeviceAccess::invisible:
      return "its device is hidden from this process; let every rank see all devices of the node "
             "(CUDA_VISIBLE_DEVICES, --gpu-bind)";
    case DeviceAccess::elsewhere:
      return "its device is on another machine";
  }
  return "unknown";
}

std::string why_no_threads(const RankPlace& here, const RankPlace& there, DeviceAccess access) {
  return here.process != there.process ? "it is another process" : why_no_device_access(access, here, there);
}

std::string why_no_shm(const RankPlace& here, const RankPlace& there) {
  if (!here.is_host()) {
    return "the ranks run on CUDA devices";
  }
  return same_machine(here, there) ? "" : "it is on another machine";
}

std::string why_no_vmm(const RankPlace& here, const RankPlace& there, DeviceAccess access) {
  return same_machine(here, there) ? why_no_device_access(access, here, there) : "it is on another machine";
}

std::string why_no_ipc(const RankPlace& here, const RankPlace& there, DeviceAccess access) {
  if (here.process == there.process) {
    return "CUDA IPC handles cannot be opened in the process that made them";
  }
  return why_no_vmm(here, there, access);
}

std::string why_no_fabric(const RankPlace& here, const RankPlace& there) {
  const bool same = here.has_fabric && there.has_fabric && here.fabric_cluster == there.fabric_cluster &&
                    here.fabric_clique == there.fabric_clique;
  return same ? "" : "the two devices are not in one NVLink fabric clique";
}

}  // namespace

std::string why_not(MemoryKind kind, const ReachFacts& facts, int from, int to) {
  const RankPlace& here = facts.places[static_cast<std::size_t>(from)];
  const RankPlace& there = facts.places[static_cast<std::size_t>(to)];
  if (here.is_host() != there.is_host()) {
    return "one runs on " + device_name(here) + ", the other on " + device_name(there);
  }
  if (kind != MemoryKind::shm) {
    for (const RankPlace* place : {&here, &there}) {
      if (!place->supports(kind)) {
        return place->is_host() ? "the ranks run on the host"
                                : device_name(*place) + " or its driver does not support it";
      }
    }
  }
  const DeviceAccess access = facts.access_of(from, to);
  switch (kind) {
    case MemoryKind::threads:
      return why_no_threads(here, there, access);
    case MemoryKind::vmm:
      return why_no_vmm(here, there, access);
    case MemoryKind::fabric:
      return why_no_fabric(here, there);
    case MemoryKind::ipc:
      return why_no_ipc(here, there, access);
    case MemoryKind::shm:
      return why_no_shm(here, there);
  }
  return "unknown kind";
}

MemoryChoice choose_memory(const ReachFacts& facts, int node, std::optional<MemoryKind> only) {
  const int ranks = static_cast<int>(facts.places.size());
  const auto first_obstacle = [&](MemoryKind kind) -> std::string {
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        const bool pair = from != to && facts.nodes[static_cast<std::size_t>(from)] == node &&
                          facts.nodes[static_cast<std::size_t>(to)] == node;
        if (std::string reason = pair ? why_not(kind, facts, from, to) : ""; !reason.empty()) {
          return "rank " + std::to_string(from) + " cannot map rank " + std::to_string(to) + ": " + reason;
        }
      }
    }
    return "";
  };
  MemoryChoice choice;
  for (int i = 0; i < kNumMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    std::string& reason = choice.reasons[static_cast<std::size_t>(i)];
    reason = only.has_value() && *only != kind
                 ? "not considered: only " + std::string(name_of(*only)) + " was asked for"
                 : first_obstacle(kind);
    if (reason.empty() && !choice.kind.has_value()) {
      choice.kind = kind;
    }
  }
  return choice;
}

std::string MemoryChoice::report() const {
  std::string lines;
  for (int i = 0; i < kNumMemoryKinds; ++i) {
    const auto current = static_cast<MemoryKind>(i);
    const std::string& reason = reasons[static_cast<std::size_t>(i)];
    std::string name(name_of(current));
    name.resize(8, ' ');
    lines += name + (reason.empty() ? (kind == current ? "used" : "possible") : "no: " + reason) + "\n";
  }
  return lines;
}

}  // namespace moelink

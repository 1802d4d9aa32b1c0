#include "transports/fabric/identity.hpp"

#include <algorithm>

#include "base/shared_library.hpp"

namespace moelink {
namespace {

constexpr int kNvmlSuccess = 0;
constexpr std::uint32_t kFabricStateCompleted = 3;

NvmlTable load() {
  NvmlTable table;
  if (const SharedLibrary library("libnvidia-ml.so.1"); library.is_loaded()) {
    (void)library.find(table.init, "nvmlInit_v2");
    (void)library.find(table.device_by_pci_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
    (void)library.find(table.fabric_info, "nvmlDeviceGetGpuFabricInfoV");
  }
  return table;
}

}  // namespace

const NvmlTable& NvmlTable::get() {
  static const NvmlTable table = load();
  return table;
}

std::optional<FabricIdentity> fabric_identity(const NvmlTable& nvml, const std::string& pci_bus_id) {
  if (nvml.init == nullptr || nvml.device_by_pci_bus_id == nullptr || nvml.fabric_info == nullptr) {
    return std::nullopt;
  }
  void* device = nullptr;
  NvmlFabricInfo info;
  if (nvml.init() != kNvmlSuccess || nvml.device_by_pci_bus_id(pci_bus_id.c_str(), &device) != kNvmlSuccess ||
      nvml.fabric_info(device, &info) != kNvmlSuccess) {
    return std::nullopt;
  }
  const bool is_registered = info.state == kFabricStateCompleted && info.status == kNvmlSuccess;
  const bool is_cluster = std::ranges::any_of(info.cluster, [](std::uint8_t byte) { return byte != 0; });
  return is_registered && is_cluster ? std::optional(FabricIdentity{info.cluster, info.clique}) : std::nullopt;
}

}  // namespace moelink

#include "transports/fabric/identity.hpp"

#include <dlfcn.h>

#include <algorithm>

namespace moelink {
namespace {

constexpr int kNvmlSuccess = 0;
constexpr std::uint32_t kFabricStateCompleted = 3;

template <class Function>
void resolve(void* library, Function*& slot, const char* name) {
  slot = reinterpret_cast<Function*>(::dlsym(library, name));
}

NvmlTable load() {
  NvmlTable table;
  // Never closed: NVML keeps state of its own for the life of the process.
  if (void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL); library != nullptr) {
    resolve(library, table.init, "nvmlInit_v2");
    resolve(library, table.device_by_pci_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
    resolve(library, table.fabric_info, "nvmlDeviceGetGpuFabricInfoV");
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

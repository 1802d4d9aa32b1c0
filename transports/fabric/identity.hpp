// Which NVLink fabric a device belongs to. The CUDA driver does not say; NVML does, and is found at run time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace moelink {

/// Ranks whose devices have equal identities can map each other's memory, on whatever machines they are.
struct FabricIdentity {
  std::array<std::uint8_t, 16> cluster{};
  std::uint32_t clique = 0;
};

/// As nvmlDeviceGetGpuFabricInfoV reports it (its version 2, of the drivers from 550 on).
struct NvmlFabricInfo {
  std::uint32_t version = 0x02000024;
  std::array<std::uint8_t, 16> cluster{};
  std::uint32_t status = 0;  ///< nvmlReturn_t of the registration; 0: success
  std::uint32_t clique = 0;
  std::uint32_t state = 0;
  std::uint32_t health = 0;
};
static_assert(sizeof(NvmlFabricInfo) == 0x24);

/// The part of NVML that is needed, as a table, so that tests can play it. A member is null if the library lacks it.
struct NvmlTable {
  int (*init)() = nullptr;
  int (*device_by_pci_bus_id)(const char* pci_bus_id, void** device) = nullptr;
  int (*fabric_info)(void* device, NvmlFabricInfo* info) = nullptr;

  /// This machine's; all null without libnvidia-ml.so.1.
  [[nodiscard]] static const NvmlTable& get();
};

/// Nothing unless the device is registered with a fabric of more than one machine (a cluster of all zeros is a single
/// machine's NVSwitch).
[[nodiscard]] std::optional<FabricIdentity> fabric_identity(const NvmlTable& nvml, const std::string& pci_bus_id);

}  // namespace moelink

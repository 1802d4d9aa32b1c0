#include "transports/cuda/place.hpp"

#if MOELINK_HAVE_CUDA

#include <cstring>

#include "moelink/error.hpp"
#include "transports/fabric/memory.hpp"

namespace moelink {
namespace {

std::array<std::uint8_t, 16> uuid_of(const CudaDriver& driver, CUdevice device) {
  CUuuid uuid{};
  check_cuda(driver.device_get_uuid(&uuid, device), "cuDeviceGetUuid");
  std::array<std::uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), uuid.bytes, bytes.size());
  return bytes;
}

bool has(const CudaDriver& driver, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  // A driver that does not know the attribute does not have the feature.
  return driver.device_get_attribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

/// Fabric handles also need an IMEX channel of this process, which no attribute tells: try.
bool can_make_fabric_memory(const CudaDriver& driver, int ordinal) {
  try {
    return make_fabric_memory(driver, ordinal)->allocate(1)->ticket().bytes[0] != std::byte{0};
  } catch (const Error&) {
    return false;
  }
}

void add(RankPlace& place, MemoryKind kind) {
  place.device_kinds = static_cast<std::uint8_t>(place.device_kinds | 1U << static_cast<unsigned>(kind));
}

void describe_fabric(const CudaDriver& driver, const NvmlTable& nvml, CUdevice device, RankPlace& place) {
  std::array<char, 32> pci_bus_id{};
  check_cuda(driver.device_get_pci_bus_id(pci_bus_id.data(), static_cast<int>(pci_bus_id.size()), device),
             "cuDeviceGetPCIBusId");
  const auto identity = fabric_identity(nvml, pci_bus_id.data());
  if (identity.has_value() && can_make_fabric_memory(driver, place.device_ordinal)) {
    add(place, MemoryKind::fabric);
    place.has_fabric = true;
    place.fabric_cluster = identity->cluster;
    place.fabric_clique = identity->clique;
  }
}

}  // namespace

void describe_cuda_device(const CudaDriver& driver, const NvmlTable& nvml, RankPlace& place) {
  CUdevice device = 0;
  check_cuda(driver.device_get(&device, place.device_ordinal), "cuDeviceGet");
  place.device_uuid = uuid_of(driver, device);
  place.has_multicast = has(driver, device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
  add(place, MemoryKind::threads);
  if (has(driver, device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)) {
    add(place, MemoryKind::ipc);
  }
  if (!has(driver, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
    return;
  }
  if (has(driver, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
    add(place, MemoryKind::vmm);
  }
  if (has(driver, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) {
    describe_fabric(driver, nvml, device, place);
  }
}

DeviceAccess cuda_device_access(const CudaDriver& driver, const RankPlace& here, const RankPlace& there) {
  if (here.device_uuid == there.device_uuid) {
    return DeviceAccess::same;
  }
  int count = 0;
  CUdevice mine = 0;
  check_cuda(driver.device_get_count(&count), "cuDeviceGetCount");
  check_cuda(driver.device_get(&mine, here.device_ordinal), "cuDeviceGet");
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    check_cuda(driver.device_get(&device, ordinal), "cuDeviceGet");
    if (uuid_of(driver, device) == there.device_uuid) {
      int can = 0;
      check_cuda(driver.device_can_access_peer(&can, mine, device), "cuDeviceCanAccessPeer");
      return can != 0 ? DeviceAccess::direct : DeviceAccess::none;
    }
  }
  return DeviceAccess::invisible;
}

}  // namespace moelink

#endif

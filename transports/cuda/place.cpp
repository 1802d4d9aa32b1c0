#include "transports/cuda/place.hpp"

#if MOELINK_HAVE_CUDA

#include <cstring>

namespace moelink {
namespace {

std::array<std::uint8_t, 16> uuid_of(const CudaDriver& driver, CUdevice device) {
  CUuuid uuid{};
  check_cuda(driver.device_get_uuid(&uuid, device), "cuDeviceGetUuid");
  std::array<std::uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), uuid.bytes, bytes.size());
  return bytes;
}

void add(RankPlace& place, MemoryKind kind) {
  place.device_kinds = static_cast<std::uint8_t>(place.device_kinds | 1U << static_cast<unsigned>(kind));
}

}  // namespace

void describe_cuda_device(const CudaDriver& driver, RankPlace& place) {
  CUdevice device = 0;
  check_cuda(driver.device_get(&device, place.device_ordinal), "cuDeviceGet");
  place.device_uuid = uuid_of(driver, device);
  add(place, MemoryKind::threads);
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

// What a device says about itself, played by a fake driver and a fake NVML.
#include <gtest/gtest.h>

#include "base/cuda_driver.hpp"
#include "transports/fabric/identity.hpp"

#if MOELINK_HAVE_CUDA
#include "fake_driver.hpp"
#include "transports/cuda/place.hpp"
#endif

namespace moelink::test {
namespace {

NvmlFabricInfo played;
int played_result = 0;

NvmlTable played_nvml() {
  played = {};
  played.state = 3;
  played.cluster = {9, 8, 7};
  played.clique = 5;
  played_result = 0;
  NvmlTable table;
  table.init = [] { return 0; };
  table.device_by_pci_bus_id = [](const char* id, void** device) {
    *device = nullptr;
    return std::string(id).starts_with("0000:") ? 0 : 2;
  };
  table.fabric_info = [](void*, NvmlFabricInfo* info) {
    EXPECT_EQ(info->version, 0x02000024U);
    *info = played;
    return played_result;
  };
  return table;
}

TEST(FabricIdentity, ARegisteredDeviceHasOne) {
  const auto identity = fabric_identity(played_nvml(), "0000:01:00.0");
  ASSERT_TRUE(identity.has_value());
  EXPECT_EQ(identity->clique, 5U);
  EXPECT_EQ(identity->cluster[2], 7);
}

TEST(FabricIdentity, NoneWithoutNvmlOrRegistration) {
  EXPECT_FALSE(fabric_identity(NvmlTable{}, "0000:01:00.0").has_value());
  const NvmlTable nvml = played_nvml();
  EXPECT_FALSE(fabric_identity(nvml, "nonsense").has_value());
  played.state = 2;  // in progress
  EXPECT_FALSE(fabric_identity(nvml, "0000:01:00.0").has_value());
  played.state = 3;
  played.status = 1;
  EXPECT_FALSE(fabric_identity(nvml, "0000:01:00.0").has_value());
  played.status = 0;
  played_result = 3;
  EXPECT_FALSE(fabric_identity(nvml, "0000:01:00.0").has_value());
}

TEST(FabricIdentity, ASingleMachinesSwitchIsNoCluster) {
  const NvmlTable nvml = played_nvml();
  played.cluster = {};
  EXPECT_FALSE(fabric_identity(nvml, "0000:01:00.0").has_value());
}

#if MOELINK_HAVE_CUDA

RankPlace describe(int ordinal, const NvmlTable& nvml = {}) {
  RankPlace place;
  place.device_ordinal = ordinal;
  describe_cuda_device(fake_driver().driver(), nvml, place);
  return place;
}

TEST(DescribeCudaDevice, KindsFollowTheAttributes) {
  fake_driver().fail_call(0);
  const RankPlace place = describe(1);
  EXPECT_TRUE(place.supports(MemoryKind::threads));
  EXPECT_TRUE(place.supports(MemoryKind::vmm));
  EXPECT_TRUE(place.supports(MemoryKind::ipc));
  EXPECT_FALSE(place.supports(MemoryKind::fabric)) << "no fabric identity";
  EXPECT_FALSE(place.supports(MemoryKind::shm));
  EXPECT_EQ(place.device_uuid[0], 2);
  EXPECT_TRUE(place.has_multicast);
}

TEST(DescribeCudaDevice, FabricOnlyWhereAHandleCanReallyBeMade) {
  const NvmlTable nvml = played_nvml();
  fake_driver().fail_call(0);
  EXPECT_TRUE(describe(0, nvml).has_fabric);
  EXPECT_TRUE(describe(0, nvml).supports(MemoryKind::fabric));
  // Without an IMEX channel every attribute says yes and cuMemCreate says no.
  fake_driver().fail_call(4, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_FALSE(describe(0, nvml).has_fabric);
  fake_driver().fail_call(0);
  EXPECT_EQ(fake_driver().held(), "");
}

TEST(CudaDeviceAccess, SameDirectNoneInvisible) {
  const RankPlace zero = describe(0);
  RankPlace other = describe(1);
  EXPECT_EQ(cuda_device_access(fake_driver().driver(), zero, zero), DeviceAccess::same);
  EXPECT_EQ(cuda_device_access(fake_driver().driver(), zero, other), DeviceAccess::direct);
  other.device_uuid[5] = 77;
  EXPECT_EQ(cuda_device_access(fake_driver().driver(), zero, other), DeviceAccess::invisible);
}

#endif

}  // namespace
}  // namespace moelink::test

// The CUDA part of a rank's place.
#pragma once

#if MOELINK_HAVE_CUDA

#include "base/cuda_driver.hpp"
#include "transports/fabric/identity.hpp"
#include "transports/place.hpp"
#include "transports/reach.hpp"

namespace moelink {

/// Fills what concerns the device `place.device_ordinal`.
void describe_cuda_device(const CudaDriver& driver, const NvmlTable& nvml, RankPlace& place);

/// Both on this machine, both on CUDA devices.
[[nodiscard]] DeviceAccess cuda_device_access(const CudaDriver& driver, const RankPlace& here, const RankPlace& there);

}  // namespace moelink

#endif

// From a kind to its implementation.
#pragma once

#include <memory>

#include "base/cuda_driver.hpp"
#include "moelink/device.hpp"
#include "transports/memory.hpp"
#include "transports/reach.hpp"

namespace moelink {

/// Throws ErrorCode::unsupported if `kind` and `device` do not go together.
[[nodiscard]] std::unique_ptr<MemoryTransport> make_memory(MemoryKind kind, Device device);

#if MOELINK_HAVE_CUDA
/// The same for CUDA devices, on a given driver.
[[nodiscard]] std::unique_ptr<MemoryTransport> make_cuda_memory(MemoryKind kind, const CudaDriver& driver, int ordinal);
#endif

/// Whether the device of `here` (this process's) can reach that of `there`.
[[nodiscard]] DeviceAccess device_access(const RankPlace& here, const RankPlace& there);

}  // namespace moelink

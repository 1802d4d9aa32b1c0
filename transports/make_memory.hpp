// From a kind to its implementation.
#pragma once

#include <memory>

#include "moelink/device.hpp"
#include "transports/memory.hpp"
#include "transports/reach.hpp"

namespace moelink {

/// Throws ErrorCode::unsupported if `kind` and `device` do not go together.
[[nodiscard]] std::unique_ptr<MemoryTransport> make_memory(MemoryKind kind, Device device);

/// Whether the device of `here` (this process's) can reach that of `there`.
[[nodiscard]] DeviceAccess device_access(const RankPlace& here, const RankPlace& there);

}  // namespace moelink

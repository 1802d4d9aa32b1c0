// Memory of ranks that are threads of one process: a mapping is the owner's pointer and a share of its life.
#pragma once

#include <memory>

#include "base/cuda_driver.hpp"
#include "moelink/device.hpp"
#include "transports/memory.hpp"

namespace moelink {

/// `device`: where this rank runs. On CUDA, mapping the memory of another device enables peer access to it, which then
/// stays on: other users of this process may have come to rely on it.
[[nodiscard]] std::unique_ptr<MemoryTransport> make_threads_memory(Device device);
#if MOELINK_HAVE_CUDA
/// The same, on a given driver.
[[nodiscard]] std::unique_ptr<MemoryTransport> make_threads_memory(const CudaDriver& driver, int ordinal);
#endif

}  // namespace moelink

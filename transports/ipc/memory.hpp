// Device memory shared by CUDA IPC handles: for processes on one machine where virtual memory cannot be shared by
// descriptors. The only kind whose memory ends with its owner, who therefore waits for the others' farewells.
#pragma once

#if MOELINK_HAVE_CUDA

#include <memory>

#include "base/cuda_driver.hpp"
#include "transports/memory.hpp"

namespace moelink {

[[nodiscard]] std::unique_ptr<MemoryTransport> make_ipc_memory(const CudaDriver& driver, int ordinal);

}  // namespace moelink

#endif

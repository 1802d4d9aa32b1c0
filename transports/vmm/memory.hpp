// Device memory shared by POSIX file descriptors: the first choice for processes on one machine.
#pragma once

#if MOELINK_HAVE_CUDA

#include <memory>

#include "transports/cuda/virtual_transport.hpp"

namespace moelink {

[[nodiscard]] std::unique_ptr<VirtualTransport> make_vmm_memory(const CudaDriver& driver, int ordinal);

}  // namespace moelink

#endif

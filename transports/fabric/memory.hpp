// Device memory shared by fabric handles, which are bytes and travel anywhere: for ranks on several machines of one
// NVLink fabric (clusters with IMEX channels).
#pragma once

#if MOELINK_HAVE_CUDA

#include <memory>

#include "transports/cuda/virtual_transport.hpp"

namespace moelink {

[[nodiscard]] std::unique_ptr<VirtualTransport> make_fabric_memory(const CudaDriver& driver, int ordinal);

}  // namespace moelink

#endif

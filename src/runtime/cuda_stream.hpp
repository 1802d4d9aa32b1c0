// From a StreamView to the driver's stream.
#pragma once

#if MOELINK_HAVE_CUDA

#include "base/cuda_driver.hpp"
#include "moelink/stream.hpp"

namespace moelink {

/// The CUDA stream of a view. Throws invalid_argument for a host stream and for the legacy default stream.
[[nodiscard]] CUstream cuda_stream_of(StreamView stream);

}  // namespace moelink

#endif

// The engine's kernels as text, as they were when it was built: what they are compiled from at run time.
#pragma once

#include <vector>

#include "moelink/kernel.hpp"

namespace moelink::engine {

[[nodiscard]] std::vector<KernelHeader> kernel_headers();

}  // namespace moelink::engine

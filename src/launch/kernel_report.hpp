// What became of kernels, as the public API tells it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "jit/compiled_kernel.hpp"
#include "jit/kernel_request.hpp"
#include "moelink/warm_up.hpp"

namespace moelink {

[[nodiscard]] std::vector<KernelReport> report_on(std::span<const KernelRequest> requests,
                                                  std::span<const std::shared_ptr<const CompiledKernel>> compiled);

}  // namespace moelink

// One kernel through NVRTC, without any cache.
#pragma once

#include <string>
#include <vector>

#include "jit/compiled_kernel.hpp"
#include "jit/kernel_request.hpp"
#include "jit/sources.hpp"

namespace moelink {

/// The architecture that makes the most of a device: "sm_90a", "sm_100a", "sm_103a", "sm_120a"; before 9.0 "sm_80"...
[[nodiscard]] std::string architecture_of(int major, int minor);

/// Everything the result of a compilation depends on, as text: sources, NVRTC version, options, architecture, header
/// and expression. Two equal texts compile to the same kernel.
[[nodiscard]] std::string compile_key(const SourceSet& sources, const KernelRequest& request,
                                      const std::string& architecture);

/// Compiles. Throws ErrorCode::compile with the expression and the compiler's log, or ErrorCode::unsupported where this
/// build or machine has no NVRTC.
[[nodiscard]] CompiledKernel compile(const SourceSet& sources, const KernelRequest& request,
                                     const std::string& architecture);

/// The PTX of the same compilation, for tests that look for an instruction.
[[nodiscard]] std::string compile_to_ptx(const SourceSet& sources, const KernelRequest& request,
                                         const std::string& architecture);

}  // namespace moelink

// What compiling a kernel gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moelink {

/// What ptxas says a kernel needs, per thread. -1: the log did not say.
struct ResourceUsage {
  int registers = -1;
  int stack_bytes = -1;
  int spill_store_bytes = -1;
  int spill_load_bytes = -1;

  [[nodiscard]] bool spills() const { return spill_store_bytes != 0 || spill_load_bytes != 0; }
  friend bool operator==(const ResourceUsage&, const ResourceUsage&) = default;
};

/// Reads the output of `ptxas -v`. Several functions in one log: the most registers, and the sum of the rest.
[[nodiscard]] ResourceUsage parse_ptxas_log(std::string_view log);

/// Where a CompiledKernel came from.
enum class KernelOrigin : std::uint8_t { compiler, disk };

[[nodiscard]] std::string_view name_of(KernelOrigin origin);

/// A kernel for one architecture.
struct CompiledKernel {
  std::string lowered_name;  ///< the mangled name, as cuModuleGetFunction wants it
  std::string cubin;
  ResourceUsage usage;
  KernelOrigin origin = KernelOrigin::compiler;
  double milliseconds = 0;  ///< to compile, or to read from the cache
};

}  // namespace moelink

// Filling the cache of compiled kernels ahead of time: in an image, or before a fleet starts.
#pragma once

#include <string>
#include <vector>

#include "moelink/device.hpp"
#include "moelink/exchange.hpp"
#include "moelink/export.hpp"

namespace moelink {

/// What became of one kernel.
struct KernelReport {
  std::string name;         ///< "LocalDecode"
  std::string origin;       ///< how this process got it: "compiled" or "disk cache"
  double milliseconds = 0;  ///< to compile or to find
  int registers = 0;        ///< per thread
  int spilled_bytes = 0;    ///< registers kept in memory, per thread; the library's own kernels have none
};

/// Compiles every kernel that an Exchange of one rank with this configuration would load on a device of
/// `architecture` ("sm_90a"), unless the user's cache on disk has it. Needs NVRTC, and no device. Throws
/// invalid_argument for a configuration that Exchange would refuse, ErrorCode::system if there is no cache that can be
/// used (MOELINK_CACHE_DIR), ErrorCode::compile or unsupported as constructing the Exchange would.
[[nodiscard]] MOELINK_EXPORT std::vector<KernelReport> warm_up(const ExchangeConfig& config,
                                                               const std::string& architecture);

/// The architecture that kernels are compiled for on a CUDA device.
[[nodiscard]] MOELINK_EXPORT std::string kernel_architecture(Device device);

}  // namespace moelink

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

/// The ranks of an Exchange that is yet to come. On one node, all can map each other's memory.
struct WarmUpRanks {
  int num_ranks = 1;
  int ranks_per_node = 0;  ///< 0: all are on one node; else the mode that is automatic is p2p
};

/// Compiles every kernel that an Exchange with this configuration would load on devices of `architecture` ("sm_90a"),
/// one for each of these ranks, unless the user's cache on disk has it; those that quantise tokens apart from dispatch
/// aside. Needs NVRTC, and no device. Throws invalid_argument for a configuration that Exchange would refuse,
/// ErrorCode::system if there is no cache that can be used (MOELINK_CACHE_DIR), ErrorCode::compile or unsupported as
/// constructing the Exchange would.
[[nodiscard]] MOELINK_EXPORT std::vector<KernelReport> warm_up(const ExchangeConfig& config,
                                                               const std::string& architecture,
                                                               const WarmUpRanks& ranks = {});

/// The architecture that kernels are compiled for on a CUDA device.
[[nodiscard]] MOELINK_EXPORT std::string kernel_architecture(Device device);

}  // namespace moelink

// What plans ask of a device.
#pragma once

#include "moelink/device.hpp"

namespace moelink {

/// Threads of a host stream made without options: MOELINK_HOST_THREADS, else one per core.
[[nodiscard]] int default_host_threads();

struct DeviceProperties {
  bool is_host = true;
  int num_sms = 1;            ///< multiprocessors. Host: default_host_threads(); a stream may have others
  int max_scratch_bytes = 0;  ///< most shared memory that one block may ask for. Host: more than any kernel needs

  /// Asks the driver; throws ErrorCode::unsupported or cuda if there is no such device.
  [[nodiscard]] static DeviceProperties of(Device device);

  friend constexpr bool operator==(const DeviceProperties&, const DeviceProperties&) = default;
};

}  // namespace moelink

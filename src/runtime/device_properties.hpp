// What plans ask of a device.
#pragma once

#include "moelink/device.hpp"

namespace moelink {

struct DeviceProperties {
  bool is_host = true;
  int num_sms = 1;            ///< multiprocessors. Host: threads that run blocks, which is the stream's to say
  int max_scratch_bytes = 0;  ///< most shared memory that one block may ask for. Host: more than any kernel needs

  /// Asks the driver; throws ErrorCode::unsupported or cuda if there is no such device. A host has as many SMs as a
  /// stream made without options has threads.
  [[nodiscard]] static DeviceProperties of(Device device);

  friend constexpr bool operator==(const DeviceProperties&, const DeviceProperties&) = default;
};

}  // namespace moelink

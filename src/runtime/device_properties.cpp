#include "runtime/device_properties.hpp"

#include <algorithm>
#include <thread>

#include "base/environment.hpp"
#include "runtime/cuda_backend.hpp"

namespace moelink {

int default_host_threads() {
  const int configured = Environment::get().host_threads;
  return configured != 0 ? configured : std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

DeviceProperties DeviceProperties::of(Device device) {
  constexpr int kHostScratchBytes = 1 << 24;
  if (device.is_host()) {
    return {.is_host = true, .num_sms = default_host_threads(), .max_scratch_bytes = kHostScratchBytes};
  }
  return {.is_host = false,
          .num_sms = cuda::num_sms(device.ordinal()),
          .max_scratch_bytes = cuda::max_scratch_bytes(device.ordinal())};
}

}  // namespace moelink

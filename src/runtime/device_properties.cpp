#include "runtime/device_properties.hpp"

#include <algorithm>
#include <thread>

#include "base/cuda_driver.hpp"
#include "base/environment.hpp"
#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

#if MOELINK_HAVE_CUDA

DeviceProperties of_cuda(int ordinal) {
  const CudaDriver& driver = CudaDriver::get();
  CUdevice device = 0;
  check_cuda(driver.device_get(&device, ordinal), "cuDeviceGet");
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    check_cuda(driver.device_get_attribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
  };
  return {.is_host = false,
          .num_sms = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
          .max_scratch_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)};
}

#else

DeviceProperties of_cuda(int ordinal) {
  throw Error(ErrorCode::unsupported,
              text("cuda:", ordinal, " was asked for, but this build has no CUDA backend; use Device::host()"));
}

#endif

}  // namespace

DeviceProperties DeviceProperties::of(Device device) {
  if (device.is_cuda()) return of_cuda(device.ordinal());
  constexpr int kScratchBytes = 1 << 24;
  const int configured = Environment::get().host_threads;
  const int threads = configured != 0 ? configured : static_cast<int>(std::thread::hardware_concurrency());
  return {.is_host = true, .num_sms = std::max(threads, 1), .max_scratch_bytes = kScratchBytes};
}

}  // namespace moelink

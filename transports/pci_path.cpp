#include "transports/pci_path.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/cuda_driver.hpp"
#include "base/text.hpp"

namespace moelink {

std::string pci_path_of(Device device) {
#if MOELINK_HAVE_CUDA
  if (device.is_cuda()) {
    const CudaDriver& driver = CudaDriver::get();
    char bus_id[16] = {};
    if (driver.device_get_pci_bus_id(bus_id, sizeof(bus_id), device.ordinal()) == CUDA_SUCCESS) {
      std::string lower = bus_id;
      std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
      char* path = ::realpath(text("/sys/bus/pci/devices/", lower).c_str(), nullptr);
      const std::string result = path != nullptr ? path : "";
      std::free(path);
      return result;
    }
  }
#else
  (void)device;
#endif
  return "";
}

}  // namespace moelink

// Where a device hangs in the machine: what is near to it follows from that.
#pragma once

#include <string>

#include "moelink/device.hpp"

namespace moelink {

/// "/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.0"; empty for the host, and where the system does not say.
[[nodiscard]] std::string pci_path_of(Device device);

}  // namespace moelink

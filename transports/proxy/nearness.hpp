// Which processors a proxy runs on: those nearest to its device, whose memory and PCIe it goes through all the time.
#pragma once

#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace moelink {

/// The processors of a list as Linux writes it, "0-3,8,10-11". Empty if it is none.
[[nodiscard]] std::vector<int> processors_of_list(std::string_view list);

/// Keeps a thread on the processors that the system says are local to a PCI device, as far as the thread may run there
/// now. Leaves it alone for an empty path and where the system does not say, or says others than these. Returns whether
/// it was moved.
bool keep_near(std::thread& thread, const std::string& pci_path);

}  // namespace moelink

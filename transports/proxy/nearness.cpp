#include "transports/proxy/nearness.hpp"

#include <pthread.h>
#include <sched.h>

#include <charconv>
#include <fstream>

namespace moelink {

std::vector<int> processors_of_list(std::string_view list) {
  std::vector<int> processors;
  const char* at = list.data();
  const char* const end = at + list.size();
  const auto number = [&](int& value) {
    const auto [stop, error] = std::from_chars(at, end, value);
    at = stop;
    return error == std::errc() && value >= 0 && value < CPU_SETSIZE;
  };
  while (at != end) {
    int first = 0;
    if (!number(first)) return {};
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      if (!number(last)) return {};
    }
    for (int processor = first; processor <= last; ++processor) processors.push_back(processor);
    if (at != end && *at++ != ',') return {};
  }
  return processors;
}

bool keep_near(std::thread& thread, const std::string& pci_path) {
  if (pci_path.empty()) return false;
  std::string list;
  std::getline(std::ifstream(pci_path + "/local_cpulist"), list);
  cpu_set_t allowed;
  if (pthread_getaffinity_np(thread.native_handle(), sizeof(allowed), &allowed) != 0) return false;
  cpu_set_t near;
  CPU_ZERO(&near);
  for (const int processor : processors_of_list(list)) {
    if (CPU_ISSET(processor, &allowed)) CPU_SET(processor, &near);
  }
  if (CPU_COUNT(&near) == 0 || CPU_EQUAL(&near, &allowed)) return false;
  return pthread_setaffinity_np(thread.native_handle(), sizeof(near), &near) == 0;
}

}  // namespace moelink

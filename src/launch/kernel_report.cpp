#include "launch/kernel_report.hpp"

namespace moelink {

std::vector<KernelReport> report_on(std::span<const KernelRequest> requests,
                                    std::span<const std::shared_ptr<const CompiledKernel>> compiled) {
  std::vector<KernelReport> reports;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    reports.push_back({.name = requests[i].name,
                       .origin = std::string(name_of(compiled[i]->origin)),
                       .milliseconds = compiled[i]->milliseconds,
                       .registers = compiled[i]->usage.registers,
                       .spilled_bytes = compiled[i]->usage.spill_store_bytes});
  }
  return reports;
}

}  // namespace moelink

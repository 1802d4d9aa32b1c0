#include "jit/compiled_kernel.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace moelink {
namespace {

// The number that stands before `words` in `line`.
std::optional<int> number_before(std::string_view line, std::string_view words) {
  const auto end = line.find(words);
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  auto start = end;
  while (start > 0 && line[start - 1] >= '0' && line[start - 1] <= '9') {
    --start;
  }
  int value = 0;
  const auto [stop, error] = std::from_chars(line.data() + start, line.data() + end, value);
  return error == std::errc() && stop == line.data() + end ? std::optional(value) : std::nullopt;
}

void add(int& total, std::optional<int> value) {
  if (value) {
    total = std::max(total, 0) + *value;
  }
}

}  // namespace

ResourceUsage parse_ptxas_log(std::string_view log) {
  ResourceUsage usage;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(log.size(), line.size() + 1));
    usage.registers = std::max(usage.registers, number_before(line, " registers").value_or(-1));
    add(usage.stack_bytes, number_before(line, " bytes stack frame"));
    add(usage.spill_store_bytes, number_before(line, " bytes spill stores"));
    add(usage.spill_load_bytes, number_before(line, " bytes spill loads"));
  }
  return usage;
}

std::string_view name_of(KernelOrigin origin) {
  switch (origin) {
    case KernelOrigin::compiler:
      return "compiled";
    case KernelOrigin::disk:
      return "disk cache";
  }
  return "?";
}

}  // namespace moelink

#include "perf/common/size_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "perf/common/usage_error.hpp"

namespace moelink::perf {
namespace {

int shift_of_suffix(std::string_view suffix) {
  if (suffix.empty()) return 0;
  if (suffix == "K" || suffix == "k") return 10;
  if (suffix == "M" || suffix == "m") return 20;
  if (suffix == "G" || suffix == "g") return 30;
  return -1;
}

}  // namespace

std::int64_t parse_size(std::string_view text, std::string_view flag) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const int shift = shift_of_suffix({end, static_cast<std::size_t>(text.data() + text.size() - end)});
  if (error != std::errc{} || value < 0 || shift < 0 || value > (std::numeric_limits<std::int64_t>::max() >> shift)) {
    throw UsageError(
        fmt::format("{}: '{}' is not a size; give a whole number, 0 or more, that fits in 63 bits, with an "
                    "optional K, M or G",
                    flag, text));
  }
  return value << shift;
}

std::vector<std::string_view> split_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  return parts;
}

std::vector<std::int64_t> parse_size_list(std::string_view text, std::string_view flag) {
  std::vector<std::int64_t> sizes;
  for (const std::string_view part : split_commas(text)) {
    sizes.push_back(parse_size(part, flag));
  }
  return sizes;
}

std::vector<std::int64_t> size_sweep(std::int64_t begin, std::int64_t end, std::int64_t factor) {
  if (begin < 1 || end < begin || factor < 2) {
    throw UsageError(
        fmt::format("a sweep from -b {} to -e {} by factor -f {} is empty or endless; -b must be 1 or more, "
                    "-e at least -b, -f 2 or more (list other sizes one by one)",
                    begin, end, factor));
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = begin; size <= end; size *= factor) {
    sizes.push_back(size);
    if (size > end / factor) break;  // the next product could overflow
  }
  return sizes;
}

}  // namespace moelink::perf

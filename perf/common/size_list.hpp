// Sizes on the command line: "4096", "16K", "0,1,33,4096", and the sweep of -b, -e and -f.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace moelink::perf {

/// A whole number, not negative, with an optional K, M or G (powers of 1024). Throws UsageError naming `flag`.
[[nodiscard]] std::int64_t parse_size(std::string_view text, std::string_view flag);

/// Sizes separated by commas, in the order given. Throws UsageError for an empty list or element.
[[nodiscard]] std::vector<std::int64_t> parse_size_list(std::string_view text, std::string_view flag);

/// begin, begin * factor, ... up to and including `end`. Throws UsageError for what would never end or start.
[[nodiscard]] std::vector<std::int64_t> size_sweep(std::int64_t begin, std::int64_t end, std::int64_t factor);

/// The parts of "a,b,c".
[[nodiscard]] std::vector<std::string_view> split_commas(std::string_view text);

}  // namespace moelink::perf

// moelink-warmup: compiles kernels into the user's cache, before they are needed and where there may be no GPU.
#pragma once

#include <iosfwd>

namespace moelink::perf {

/// Runs the tool; the table goes to `out`. Returns the exit code (perf/common/tool.hpp).
[[nodiscard]] int run_warmup(int argc, const char* const* argv, std::ostream& out);

}  // namespace moelink::perf

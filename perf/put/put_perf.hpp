// put_perf: latency and bandwidth of puts, in perftest's manner.
#pragma once

#include <iosfwd>

namespace moelink::perf {

/// The tool, with its table going to `out` of rank 0. Returns the exit code (tool.hpp).
[[nodiscard]] int run_put_perf(int argc, const char* const* argv, std::ostream& out);

}  // namespace moelink::perf

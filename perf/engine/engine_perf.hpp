// engine_perf: tokens per second of a random model, and the share of dispatch and combine.
#pragma once

#include <iosfwd>

namespace moelink::perf {

/// The whole tool; the exit code (tool.hpp).
[[nodiscard]] int run_engine_perf(int argc, const char* const* argv, std::ostream& out);

}  // namespace moelink::perf

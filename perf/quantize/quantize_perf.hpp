// quantize_perf: times the stand-alone quantise against a copy that moves as many bytes, and checks every byte.
#pragma once

#include <iosfwd>

namespace moelink::perf {

/// The whole program; the table goes to `out`. Returns the exit code.
[[nodiscard]] int run_quantize_perf(int argc, const char* const* argv, std::ostream& out);

}  // namespace moelink::perf

// moelink-generate: text in, text out, by a model in a folder.
#pragma once

#include <iosfwd>

namespace moelink::engine {

/// The whole tool; the exit code (perf/common/tool.hpp).
[[nodiscard]] int run_generate(int argc, const char* const* argv, std::ostream& out);

}  // namespace moelink::engine

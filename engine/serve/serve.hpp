// moelink-serve: an OpenAI-style endpoint in front of a model in a folder.
#pragma once

namespace moelink::engine {

/// The whole tool; the exit code (perf/common/tool.hpp). Serves until SIGTERM or SIGINT.
[[nodiscard]] int run_serve(int argc, const char* const* argv);

}  // namespace moelink::engine

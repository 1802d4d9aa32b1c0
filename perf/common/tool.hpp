// The frame of a perf tool: command line, errors, exit code.
#pragma once

#include <functional>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the name that CLI11 has
class App;
}

namespace moelink::perf {

/// Exit codes of every perf tool.
inline constexpr int kExitGood = 0;   ///< something was measured, and nothing that was checked was wrong
inline constexpr int kExitWrong = 1;  ///< wrong values, nothing measured, or an error on the way
inline constexpr int kExitUsage = 2;  ///< the command line cannot be followed

/// Parses the command line into what `app` was given (of a flag that is repeated, the last counts) and runs `body`,
/// which returns the exit code. Help and version go to stdout; what went wrong goes to stderr as one line that says
/// what to do.
[[nodiscard]] int run_tool(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body);

}  // namespace moelink::perf

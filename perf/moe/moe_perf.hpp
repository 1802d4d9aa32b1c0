// moe_perf: times dispatch and combine, and checks every value.
#pragma once

#include <iosfwd>

#include "perf/moe/moe_bench.hpp"

namespace moelink::perf {

/// The whole program; the table goes to `out`. Returns the exit code.
[[nodiscard]] int run_moe_perf(int argc, const char* const* argv, std::ostream& out, const MoeHooks& hooks = {});

}  // namespace moelink::perf

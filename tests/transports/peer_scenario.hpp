// What a rank of its own process does with symmetric memory, for the multi-process tests of every kind.
#pragma once

#include <string>

#include "process_group.hpp"
#include "transports/memory.hpp"

namespace moelink::test {

/// Runs `scenario` as one rank and returns the exit code, 0 if all was as expected; complains on stderr.
///  - exchange: everybody writes everybody, twice, with two buffers destroyed in different orders.
///  - outlive:  rank 0 leaves first, the others still write its memory (counted memory only).
///  - killed:   the last rank kills itself while it is mapped; the others go on, and leave within their deadlines.
///  - late:     the last rank kills itself in the middle of allocation; the others get an error.
[[nodiscard]] int run_scenario(ProcessMeeting& meeting, int rank, MemoryKind kind, int device_ordinal,
                               const std::string& scenario, const std::string& socket_directory);

}  // namespace moelink::test

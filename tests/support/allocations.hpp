// How often this process has called operator new: for tests of paths that must not allocate. Link allocations.cpp.
#pragma once

namespace moelink::test {

[[nodiscard]] long num_allocations();

}  // namespace moelink::test

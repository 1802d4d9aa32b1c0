// One thread for each of several ranks.
#pragma once

#include <cstddef>
#include <functional>

namespace moelink {

/// Calls run(0) ... run(count - 1), each on a new thread, and waits for all. Throws the first exception by time.
void run_threads(std::size_t count, const std::function<void(std::size_t)>& run);

}  // namespace moelink

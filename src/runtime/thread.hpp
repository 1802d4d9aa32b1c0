// Threads of the library: named, and deaf to signals, which belong to the program's own threads.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace moelink {

/// Starts a thread that debuggers show as `name` (cut to 15 characters) and that handles no signals. Throws
/// ErrorCode::system if the system allows no more threads.
[[nodiscard]] std::thread start_thread(const std::string& name, std::function<void()> body);

}  // namespace moelink

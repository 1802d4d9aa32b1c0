// Host memory shared between processes: an anonymous memory file whose descriptor travels over a Unix socket. Nothing
// has a name, so nothing is left behind: the kernel frees the file with its last mapping and descriptor, also when
// every process was killed.
#pragma once

#include <memory>

#include "transports/memory.hpp"

namespace moelink {

[[nodiscard]] std::unique_ptr<MemoryTransport> make_shm_memory();

}  // namespace moelink

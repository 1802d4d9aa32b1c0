// Memory of the host that the library owns.
#pragma once

#include <cstddef>

namespace moelink {

/// At least `size_bytes` > 0, aligned to 256 bytes, large ones to huge pages. Not zeroed; std::free() gives it back.
/// Throws ErrorCode::capacity.
[[nodiscard]] void* allocate_on_host(std::size_t size_bytes);

}  // namespace moelink

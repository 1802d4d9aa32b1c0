// GPU memory as the NIC sees it: by dma-buf, or by a peer-memory module.
#pragma once

#if MOELINK_HAVE_VERBS

#include "transports/verbs/nic.hpp"

namespace moelink {

/// Throws ErrorCode::unsupported, with what both ways said, if neither works.
[[nodiscard]] MemoryHandle register_device_memory(const VerbsLibrary& verbs, ibv_pd* domain, const PutMemory& memory,
                                                  int access, bool relaxed_ordering);

}  // namespace moelink

#endif

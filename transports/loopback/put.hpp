// Puts between ranks of one process: a copy and a line in the peer's inbox.
#pragma once

#include <memory>

#include "transports/put.hpp"

namespace moelink {

/// Host memory only, which includes memory pinned for a device. Put copies before it returns.
[[nodiscard]] std::unique_ptr<PutTransport> make_loopback_put(const PutOptions& options);

}  // namespace moelink

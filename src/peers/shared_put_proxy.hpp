// The proxy that all objects of one rank share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "moelink/communicator.hpp"
#include "transports/proxy/proxy.hpp"

namespace moelink {

/// Collective; `remotes`: of a communicator always the same. `transport`: "loopback", "verbs", "ucx", or empty for
/// MOELINK_PUT, else the first that works. It lives as long as the communicator, so that objects come and go without
/// ranks connecting anew. When puts fail, the group ends.
[[nodiscard]] std::shared_ptr<PutProxy> shared_put_proxy(const Communicator& communicator, std::vector<int> remotes,
                                                         const std::string& transport);

}  // namespace moelink

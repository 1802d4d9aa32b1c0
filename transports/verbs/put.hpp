// Puts as RDMA writes with immediate over reliable connections.
#pragma once

#include <memory>

#include "transports/put.hpp"
#include "transports/verbs/port.hpp"

namespace moelink {

/// Opens the NICs that `settings` name, or the nearest. Throws ErrorCode::unsupported if this build or machine has none.
[[nodiscard]] std::unique_ptr<PutTransport> make_verbs_put(const PutOptions& options, const VerbsSettings& settings);

}  // namespace moelink

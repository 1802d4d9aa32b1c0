// Puts as active messages of UCX: payload and immediate in one message (docs/decisions/0007-puts-over-ucx.md).
#pragma once

#include <memory>

#include "transports/put.hpp"

namespace moelink {

struct UcxLibrary;

/// UCX chooses the network (UCX_TLS, UCX_NET_DEVICES, ... are its own). Throws ErrorCode::unsupported if there is no UCX.
[[nodiscard]] std::unique_ptr<PutTransport> make_ucx_put(const PutOptions& options);
/// The same over functions of one's own, which outlive it; where there is UCX.
[[nodiscard]] std::unique_ptr<PutTransport> make_ucx_put_over(const UcxLibrary& ucx, const PutOptions& options);

}  // namespace moelink

// NCCL between GPUs.
#pragma once

#include <memory>
#include <string>

#include "perf/collectives/collectives.hpp"

namespace moelink::perf {

/// Null, with the reason, on the host, without libnccl.so.2, and for ranks that share a GPU, which NCCL refuses. The
/// library is loaded at run time. Collective.
[[nodiscard]] std::unique_ptr<Collectives> make_nccl_collectives(const Communicator& communicator, StreamView stream,
                                                                 std::string& reason);

}  // namespace moelink::perf

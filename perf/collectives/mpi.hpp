// MPI between processes of the host.
#pragma once

#include <memory>
#include <string>

#include "perf/collectives/collectives.hpp"

namespace moelink::perf {

/// Null, with the reason, in builds without MPI and for ranks that mpirun did not start one by one. Starts MPI, once in a
/// process: with `transport` "ucx", an Open MPI that is told by no variable what to use is told to use UCX and nothing else,
/// and then does not start where it cannot. Collective.
[[nodiscard]] std::unique_ptr<Collectives> make_mpi_collectives(const std::string& transport,
                                                                const Communicator& communicator, StreamView stream,
                                                                std::string& reason);

}  // namespace moelink::perf

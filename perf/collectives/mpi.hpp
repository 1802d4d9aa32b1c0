// MPI between processes of the host.
#pragma once

#include <memory>
#include <string>

#include "perf/collectives/collectives.hpp"

namespace moelink::perf {

/// Null, with the reason, in builds without MPI and for ranks that mpirun did not start one by one. Starts MPI. Collective.
[[nodiscard]] std::unique_ptr<Collectives> make_mpi_collectives(const Communicator& communicator, StreamView stream,
                                                                std::string& reason);

}  // namespace moelink::perf

// MPI between processes of the host.
#pragma once

#include <memory>
#include <string>

#include "perf/collectives/collectives.hpp"

namespace moelink::perf {

/// Null, with the reason, in builds without MPI and for ranks that mpirun did not start one by one. Starts MPI, once in
/// a process. With `transport` "ucx", what no variable says is set: OMPI_MCA_pml=ucx, without which Open MPI then does
/// not start, and on machines without RDMA UCX_TLS=tcp,self, which puts read, too. Collective.
[[nodiscard]] std::unique_ptr<Collectives> make_mpi_collectives(const std::string& transport,
                                                                const Communicator& communicator, StreamView stream,
                                                                std::string& reason);

}  // namespace moelink::perf

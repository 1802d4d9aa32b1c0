// Ranks of an MPI communicator. Its own target, moelink::mpi: nothing else in the library knows MPI.
#pragma once

#include <mpi.h>

#include "moelink/communicator.hpp"
#include "moelink/export.hpp"

namespace moelink {

/// Collective over `communicator`, which must be an intracommunicator and is used by one all-gather here and never
/// again: MPI may be finalised before moelink is used. Ranks then talk over TCP, as with the caller's own all-gather.
/// Throws ErrorCode::timeout if a rank does not call it within the deadline; MPI may then still read and write two
/// small buffers, which are never freed, since MPI cannot cancel a collective.
[[nodiscard]] MOELINK_EXPORT Communicator from_mpi(MPI_Comm communicator, const CommunicatorOptions& options = {});

}  // namespace moelink

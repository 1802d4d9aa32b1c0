#include "perf/collectives/collectives.hpp"

#include <numeric>

#include "perf/collectives/mpi.hpp"
#include "perf/collectives/nccl.hpp"
#include "perf/collectives/shared_memory.hpp"

namespace moelink::perf {
namespace {

bool in_one_process(const Communicator& communicator) {
  for (int rank = 0; rank < communicator.size(); ++rank) {
    if (!communicator.topology().same_process(0, rank)) return false;
  }
  return true;
}

}  // namespace

std::int64_t RankRows::first(int rank) const {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
}

std::unique_ptr<Collectives> make_collectives(CollectivesKind kind, const std::string& transport,
                                              const Communicator& communicator, StreamView stream, Team& team,
                                              std::string& reason) {
  const bool host = stream.device().is_host();
  if (kind == CollectivesKind::nccl || (kind == CollectivesKind::best && !host)) {
    return make_nccl_collectives(communicator, stream, reason);
  }
  if (!host) {
    reason = "MPI moves rows of the host here; give --device host";
    return nullptr;
  }
  if (kind == CollectivesKind::best && in_one_process(communicator)) {
    return std::make_unique<SharedMemoryCollectives>(communicator, stream, team);
  }
  return make_mpi_collectives(transport, communicator, stream, reason);
}

}  // namespace moelink::perf

// What a program without this library moves rows with: NCCL on GPUs, MPI between processes of the host, and plain loops
// between threads of one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moelink/communicator.hpp"
#include "moelink/stream.hpp"
#include "moelink/types.hpp"
#include "perf/common/team.hpp"

namespace moelink::perf {

/// Rows for every rank, packed in the order of ranks.
struct RankRows {
  std::vector<std::int64_t> counts;  ///< [ranks]

  [[nodiscard]] std::int64_t first(int rank) const;
  [[nodiscard]] std::int64_t total() const { return first(static_cast<int>(counts.size())); }
};

/// Every rank calls the same, with memory of its device. On a GPU calls are enqueued on the stream; on the host they
/// wait for it, and are done when they return.
class Collectives {
 public:
  virtual ~Collectives() = default;

  /// "NCCL 2.28.9", "Open MPI v4.1.4, pml ucx, UCX_TLS=tcp,self", "host memory".
  [[nodiscard]] virtual std::string name() const = 0;
  /// `mine` of every rank, in rank order.
  virtual void all_gather(const void* mine, void* all, std::int64_t bytes) = 0;
  /// Rank r gets the sum of everyone's elements [r * count, (r + 1) * count). In what order is the implementation's.
  virtual void reduce_scatter(const void* all, void* mine, std::int64_t count, DataType type) = 0;
  /// `bytes` to every rank, in rank order, and as many from each.
  virtual void all_to_all(const void* send, void* receive, std::int64_t bytes) = 0;
  /// Rows to every rank and from every rank, in one group.
  virtual void exchange(const void* send, const RankRows& sent, void* receive, const RankRows& received,
                        std::int64_t row_bytes) = 0;
};

/// Which library: the best for this device and these ranks, or the one that was asked for.
enum class CollectivesKind { best, nccl, mpi };

/// `transport`: what puts go over, which MPI then has to use, too, if it can ("ucx"); empty: its own choice. Null if
/// these ranks cannot have it; `reason` then says why, on every rank. Collective.
[[nodiscard]] std::unique_ptr<Collectives> make_collectives(CollectivesKind kind, const std::string& transport,
                                                            const Communicator& communicator, StreamView stream,
                                                            Team& team, std::string& reason);

}  // namespace moelink::perf

// Ranks that start together.
#pragma once

#include <optional>

#include "moelink/all_reduce.hpp"
#include "moelink/buffer.hpp"
#include "moelink/communicator.hpp"
#include "moelink/stream.hpp"
#include "perf/common/timing.hpp"

namespace moelink::perf {

/// Aligns the ranks of a communicator before each piece of a sample: their hosts by a barrier; and inside a node of
/// GPUs their streams by an all-reduce of one number, which ends on no rank before it began on all. Outlives the
/// TimedTurns that it is added to.
class RankAlignment {
 public:
  /// Collective. `stream` is the one that is timed.
  RankAlignment(const Communicator& communicator, StreamView stream);

  void add_to(TimingOptions& options);

 private:
  void enqueue();

  Communicator communicator_;
  StreamView stream_;
  Buffer number_;
  std::optional<AllReduce> all_reduce_;  // none: one rank, the host, or several nodes
};

}  // namespace moelink::perf

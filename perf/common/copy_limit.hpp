// The limit that results are compared with: how fast this machine copies memory, measured in the same run.
#pragma once

#include <cstdint>
#include <vector>

#include "moelink/buffer.hpp"
#include "moelink/stream.hpp"
#include "perf/common/team.hpp"
#include "perf/common/timing.hpp"

namespace moelink::perf {

/// Copies to time among the calls they are compared with, so that both meet the same machine.
struct CopyWork {
  TimedWork work;
  double scale = 0;  ///< time of a copy * scale = time to move what was asked for
};

/// Device-to-device copies on CUDA, memcpy by every thread of the team on the host.
class CopyLimit {
 public:
  CopyLimit(StreamView stream, Team& team) : stream_(stream), team_(team) {}

  /// One work for each entry of `moved_bytes`: copies that read and write as many bytes, `num_sets` of them on data of
  /// their own. Above 2 GB a part is copied and the scale makes up for it: bandwidth does not change any more. The
  /// works are good until the next call.
  [[nodiscard]] std::vector<CopyWork> prepare(const std::vector<std::int64_t>& moved_bytes, int num_sets);

 private:
  void reserve(std::int64_t bytes);
  void copy(std::int64_t set, std::int64_t bytes);

  StreamView stream_;
  Team& team_;
  Buffer from_;
  Buffer to_;
};

}  // namespace moelink::perf

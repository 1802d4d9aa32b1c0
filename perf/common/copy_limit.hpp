// The limit that results are compared with: how fast this machine copies memory, measured in the same run.
#pragma once

#include <cstdint>

#include "moelink/buffer.hpp"
#include "moelink/stream.hpp"
#include "perf/common/team.hpp"
#include "perf/common/timing.hpp"

namespace moelink::perf {

/// Times copies that read and write as many bytes as a call has to move: a device-to-device copy on CUDA, memcpy by
/// every thread of the team on the host.
class CopyLimit {
 public:
  CopyLimit(StreamView stream, Team& team) : stream_(stream), team_(team) {}

  /// Microseconds (median) to move `moved_bytes`, reads and writes added up; 0 for 0. Above 2 GB a part is copied and
  /// the time scaled: bandwidth does not change any more. `num_sets` copies with data of their own make a sample.
  [[nodiscard]] double time_us(std::int64_t moved_bytes, int num_sets, const TimingOptions& options);

 private:
  void reserve(std::int64_t bytes);
  void copy(std::int64_t set, std::int64_t bytes);

  StreamView stream_;
  Team& team_;
  Buffer from_;
  Buffer to_;
};

}  // namespace moelink::perf

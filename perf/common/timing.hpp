// How long calls take on a stream.
//
// On CUDA, the calls of one sample are captured into a graph and replayed between two events; something short runs on
// the device before the first event, so that the host's launch of the graph is hidden. On the host, a sample is
// wall-clock time from the first enqueue to the end of the last call.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "moelink/stream.hpp"

namespace moelink::perf {

/// Calls timed together: `enqueue` puts `num_calls` of them on the stream, each on data of its own.
struct TimedWork {
  std::function<void()> enqueue;
  int num_calls = 1;
};

/// Microseconds per call, one value per sample.
struct WorkTimes {
  std::vector<double> us = {};
  std::vector<double> host_us =
      {};  ///< CUDA without a graph: what the calls cost the thread that makes them; else none
};

struct TimingOptions {
  int warmup = 5;         ///< samples that do not count
  int samples = 20;       ///< samples that do
  int graph_replays = 1;  ///< CUDA: a sample is the mean of so many replays; 0: no graph, calls are launched one by one
  bool cold_cache = true;                 ///< CUDA: data of a call is not in the L2 when it starts
  std::function<void()> align = nullptr;  ///< called on the host before each piece of a sample: aligns ranks
  /// CUDA: enqueues, between the prelude and the first event, what ends on all ranks at once. Hosts that were aligned
  /// are not enough: preludes of ranks that share a GPU run one after the other, and the first rank's calls would wait
  /// for the last's.
  std::function<void()> align_on_device = nullptr;
};

/// Works that must take turns (dispatch and combine), captured once and then run or timed any number of times.
class TimedTurns {
 public:
  /// What `works` refer to must outlive this.
  TimedTurns(StreamView stream, std::vector<TimedWork> works, TimingOptions options);
  ~TimedTurns();
  TimedTurns(const TimedTurns&) = delete;
  TimedTurns& operator=(const TimedTurns&) = delete;

  /// Runs one work the way it is timed, and waits for it.
  void run(std::size_t work);

  /// Each sample runs every work once, in order.
  [[nodiscard]] std::vector<WorkTimes> time();

 private:
  class DeviceTimer;
  struct Piece {
    double us = 0;
    double host_us = 0;
  };
  Piece time_once(std::size_t work);

  StreamView stream_;
  std::vector<TimedWork> works_;
  TimingOptions options_;
  std::unique_ptr<DeviceTimer> device_;  // null on the host
};

}  // namespace moelink::perf

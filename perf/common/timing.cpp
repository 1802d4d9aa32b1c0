#include "perf/common/timing.hpp"

#include <algorithm>
#include <chrono>

#include "moelink/buffer.hpp"

namespace moelink::perf {
namespace {

/// Runs on the device before a piece that is timed: empties the L2, or leaves it alone, and gives the host the time to
/// launch what follows.
class Prelude {
 public:
  Prelude(StreamView stream, bool cold)
      : stream_(stream), fills_(cold ? 1 : 32), buffer_(stream.device(), cold ? kFlushBytes : kDelayBytes) {}

  void enqueue() {
    for (int i = 0; i < fills_; ++i) {
      fill_bytes(buffer_.data(), static_cast<unsigned char>(++count_), buffer_.size_bytes(), stream_);
    }
  }

 private:
  static constexpr std::size_t kFlushBytes = std::size_t{256} << 20;  // several times any L2
  static constexpr std::size_t kDelayBytes = std::size_t{64} << 10;   // too small to evict anything that matters

  StreamView stream_;
  int fills_;
  unsigned count_ = 0;
  Buffer buffer_;
};

double elapsed_us(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

class TimedTurns::DeviceTimer {
 public:
  DeviceTimer(StreamView stream, const std::vector<TimedWork>& works, const TimingOptions& options)
      : stream_(stream),
        start_(stream.device()),
        stop_(stream.device()),
        prelude_(stream, options.cold_cache),
        align_(options.align_on_device) {
    if (options.graph_replays == 0) return;
    for (const TimedWork& work : works) {
      graphs_.push_back(Graph::record(stream, work.enqueue));
    }
  }

  [[nodiscard]] bool has_graphs() const { return !graphs_.empty(); }

  void launch(std::size_t index, const TimedWork& work) {
    if (graphs_.empty()) {
      work.enqueue();
    } else {
      graphs_[index].launch(stream_);
    }
  }

  Piece time(std::size_t index, const TimedWork& work) {
    prelude_.enqueue();
    if (align_) align_();
    start_.record(stream_);
    const double host_us = elapsed_us([&] { launch(index, work); });
    stop_.record(stream_);
    stop_.synchronize();
    return {.us = stop_.since(start_).count(), .host_us = host_us};
  }

 private:
  StreamView stream_;
  Event start_;
  Event stop_;
  Prelude prelude_;
  std::function<void()> align_;
  std::vector<Graph> graphs_;
};

TimedTurns::TimedTurns(StreamView stream, std::vector<TimedWork> works, TimingOptions options)
    : stream_(stream), works_(std::move(works)), options_(std::move(options)) {
  if (stream.device().is_cuda()) {
    device_ = std::make_unique<DeviceTimer>(stream, works_, options_);
  }
}

TimedTurns::~TimedTurns() = default;

void TimedTurns::run(std::size_t work) {
  if (options_.align) options_.align();
  if (device_) {
    device_->launch(work, works_[work]);
  } else {
    works_[work].enqueue();
  }
  stream_.synchronize();
}

TimedTurns::Piece TimedTurns::time_once(std::size_t work) {
  if (options_.align) options_.align();
  if (device_) return device_->time(work, works_[work]);
  stream_.synchronize();
  return {.us = elapsed_us([&] {
            works_[work].enqueue();
            stream_.synchronize();
          })};
}

std::vector<WorkTimes> TimedTurns::time() {
  const int replays = device_ ? std::max(1, options_.graph_replays) : 1;
  const bool times_host = device_ && !device_->has_graphs();
  std::vector<WorkTimes> times(works_.size());
  for (int sample = -options_.warmup; sample < options_.samples; ++sample) {
    std::vector<Piece> total(works_.size());
    for (int replay = 0; replay < replays; ++replay) {
      for (std::size_t work = 0; work < works_.size(); ++work) {
        const Piece piece = time_once(work);
        total[work].us += piece.us;
        total[work].host_us += piece.host_us;
      }
    }
    for (std::size_t work = 0; sample >= 0 && work < works_.size(); ++work) {
      const int num_calls = replays * works_[work].num_calls;
      times[work].us.push_back(total[work].us / num_calls);
      if (times_host) times[work].host_us.push_back(total[work].host_us / num_calls);
    }
  }
  return times;
}

}  // namespace moelink::perf

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

  void launch(std::size_t index, const TimedWork& work) {
    if (graphs_.empty()) {
      work.enqueue();
    } else {
      graphs_[index].launch(stream_);
    }
  }

  double time_us(std::size_t index, const TimedWork& work) {
    prelude_.enqueue();
    if (align_) align_();
    start_.record(stream_);
    launch(index, work);
    stop_.record(stream_);
    stop_.synchronize();
    return stop_.since(start_).count();
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

double TimedTurns::time_once_us(std::size_t work) {
  if (options_.align) options_.align();
  if (device_) return device_->time_us(work, works_[work]);
  stream_.synchronize();
  const auto start = std::chrono::steady_clock::now();
  works_[work].enqueue();
  stream_.synchronize();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::vector<double>> TimedTurns::time() {
  const int replays = device_ ? std::max(1, options_.graph_replays) : 1;
  std::vector<std::vector<double>> times(works_.size());
  for (int sample = -options_.warmup; sample < options_.samples; ++sample) {
    std::vector<double> total_us(works_.size(), 0.0);
    for (int replay = 0; replay < replays; ++replay) {
      for (std::size_t work = 0; work < works_.size(); ++work) {
        total_us[work] += time_once_us(work);
      }
    }
    for (std::size_t work = 0; sample >= 0 && work < works_.size(); ++work) {
      times[work].push_back(total_us[work] / replays / works_[work].num_calls);
    }
  }
  return times;
}

}  // namespace moelink::perf

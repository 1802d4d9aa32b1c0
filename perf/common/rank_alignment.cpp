#include "perf/common/rank_alignment.hpp"

namespace moelink::perf {

RankAlignment::RankAlignment(const Communicator& communicator, StreamView stream)
    : communicator_(communicator), stream_(stream), number_(stream.device(), sizeof(float)) {
  if (communicator.size() == 1 || stream.device().is_host() || communicator.topology().num_nodes() > 1) return;
  fill_bytes(number_.data(), 0, number_.size_bytes(), stream);
  stream.synchronize();
  all_reduce_.emplace(communicator, AllReduceConfig{.type = DataType::float32, .max_elements = 1});
}

void RankAlignment::enqueue() {
  (*all_reduce_)({.input = number_.data(), .output = number_.data(), .num_elements = 1}, stream_);
}

void RankAlignment::add_to(TimingOptions& options) {
  if (communicator_.size() == 1) return;
  options.align = [this] { communicator_.barrier(); };
  if (all_reduce_) options.align_on_device = [this] { enqueue(); };
}

}  // namespace moelink::perf

#include "engine/model/exchange_timer.hpp"

namespace moelink::engine {

ExchangeTimer::ExchangeTimer(Device device, std::int64_t num_layers) {
  for (std::int64_t i = 0; i < num_layers; ++i) {
    layers_.push_back({Event(device), Event(device), Event(device), Event(device)});
  }
}

void ExchangeTimer::record(std::size_t point, StreamView stream) {
  if (enabled_ && layer_ < layers_.size()) {
    layers_[layer_].at(point).record(stream);
  }
}

void ExchangeTimer::end_combine(StreamView stream) {
  record(3, stream);
  ++layer_;
}

double ExchangeTimer::total_us(std::size_t begin, std::size_t end) const {
  double total = 0;
  for (std::size_t i = 0; i < layer_ && i < layers_.size(); ++i) {
    total += layers_[i].at(end).since(layers_[i].at(begin)).count();
  }
  return total;
}

}  // namespace moelink::engine

// How long a step spends in dispatch and combine.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "moelink/stream.hpp"

namespace moelink::engine {

class ExchangeTimer {
 public:
  /// For `num_layers` layers; for none, it measures nothing.
  ExchangeTimer(Device device, std::int64_t num_layers);

  void enable(bool wanted) noexcept { enabled_ = wanted; }
  void begin_step() noexcept { layer_ = 0; }
  void begin_dispatch(StreamView stream) { record(0, stream); }
  void end_dispatch(StreamView stream) { record(1, stream); }
  void begin_combine(StreamView stream) { record(2, stream); }
  void end_combine(StreamView stream);

  /// Of the last step, once the stream has passed it.
  [[nodiscard]] double dispatch_us() const { return total_us(0, 1); }
  [[nodiscard]] double combine_us() const { return total_us(2, 3); }

 private:
  void record(std::size_t point, StreamView stream);
  [[nodiscard]] double total_us(std::size_t begin, std::size_t end) const;

  std::vector<std::array<Event, 4>> layers_;
  std::size_t layer_ = 0;
  bool enabled_ = true;
};

}  // namespace moelink::engine

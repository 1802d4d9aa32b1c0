// Which calls on CUDA streams have begun to run and not ended, and since when.
#pragma once

#if MOELINK_HAVE_CUDA

#include <array>
#include <chrono>
#include <mutex>
#include <optional>

#include "base/cuda_driver.hpp"
#include "moelink/device.hpp"

namespace moelink {

/// Puts an event before and after each call. A fixed number of calls is followed at once; one more is not followed,
/// which loses nothing as long as an older one is: if that ends, there is room again. One thread enters calls, another
/// may ask.
class EagerCalls {
 public:
  explicit EagerCalls(Device device);
  ~EagerCalls();
  EagerCalls(const EagerCalls&) = delete;
  EagerCalls& operator=(const EagerCalls&) = delete;

  /// Enqueues with `enqueue()`, between two events; without any while the stream is captured.
  template <class Enqueue>
  void follow(CUstream stream, Enqueue&& enqueue) {
    Call* call = begin(stream);
    enqueue();
    end(call, stream);
  }

  /// How long the call that has been running longest has been seen to; zero if none runs.
  [[nodiscard]] std::chrono::milliseconds longest_running();

 private:
  using Clock = std::chrono::steady_clock;
  struct Call {
    CUevent begun = nullptr;
    CUevent ended = nullptr;
    bool in_use = false;  // both events are recorded
    std::optional<Clock::time_point> seen_running = std::nullopt;
  };

  Call* begin(CUstream stream);
  void end(Call* call, CUstream stream);
  void look(Call& call) const;

  Device device_;
  std::mutex mutex_;
  std::array<Call, 64> calls_;
};

}  // namespace moelink

#endif

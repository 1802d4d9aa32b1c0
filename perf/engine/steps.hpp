// Steps of a random model, timed.
#pragma once

#include <cstdint>

#include "engine/model/model.hpp"
#include "moelink/stream.hpp"
#include "perf/engine/settings.hpp"

namespace moelink::perf {

/// Medians over the samples.
struct StepResult {
  double step_us = 0;
  double dispatch_share = 0;  ///< of the step's time, in a step that is not captured
  double combine_share = 0;
  bool captured = false;  ///< step_us is of replays of a CUDA graph
  bool finite = false;    ///< all logits are numbers
};

class StepTimer {
 public:
  explicit StepTimer(const EngineSettings& settings);

  /// A chunk of one prompt, from its start.
  [[nodiscard]] StepResult prefill(std::int64_t num_rows);
  /// One row each of sequences with `context` positions.
  [[nodiscard]] StepResult decode(std::int64_t num_rows);

 private:
  [[nodiscard]] StepResult time(const engine::Batch& batch, bool capture);
  [[nodiscard]] double time_once_us(const std::function<void()>& step);

  const EngineSettings& settings_;
  engine::Model model_;
  Stream stream_;
};

}  // namespace moelink::perf

// Steps of a random model, timed.
#pragma once

#include <cstdint>

#include <functional>
#include <vector>

#include "engine/model/model.hpp"
#include "moelink/stream.hpp"
#include "perf/common/rank_alignment.hpp"
#include "perf/engine/settings.hpp"

namespace moelink::perf {

/// Medians over the samples; the same on every rank.
struct StepResult {
  double step_us = 0;         ///< of the slowest rank
  double dispatch_share = 0;  ///< of the step's time, in a step that is not captured; the ranks' mean
  double combine_share = 0;
  bool captured = false;       ///< step_us is of replays of a CUDA graph
  std::int64_t num_wrong = 0;  ///< ranks with logits that are no numbers
};

/// One rank. Every call is collective: the ranks of a group make the same ones.
class StepTimer {
 public:
  StepTimer(const Communicator& communicator, const EngineSettings& settings);

  /// A chunk of one prompt, from its start.
  [[nodiscard]] StepResult prefill(std::int64_t num_rows);
  /// One row each of sequences with `context` positions.
  [[nodiscard]] StepResult decode(std::int64_t num_rows);

 private:
  [[nodiscard]] StepResult time(const engine::Batch& batch, bool capture);
  [[nodiscard]] double time_once_us(const std::function<void()>& step);
  [[nodiscard]] double time_replays_us(const std::function<void()>& step);
  [[nodiscard]] double median_of_slowest(const std::vector<double>& mine) const;
  [[nodiscard]] double mean_of_ranks(double mine) const;
  [[nodiscard]] engine::Token token_of(std::int64_t row, std::int64_t num_rows) const;

  Communicator communicator_;
  const EngineSettings& settings_;
  engine::Model model_;
  Stream stream_;
  Event start_;
  Event end_;
  RankAlignment alignment_;
  TimingOptions aligned_;
};

}  // namespace moelink::perf

// Steps of few rows as CUDA graphs, one for each of some numbers of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/batch.hpp"
#include "engine/model/model.hpp"
#include "moelink/stream.hpp"

namespace moelink::engine {

/// The numbers of rows that steps are captured for: powers of two up to `most`, and `most`; also 0 if ranks take part
/// in steps without rows of their own.
class StepBuckets {
 public:
  StepBuckets() = default;
  StepBuckets(std::int64_t most, std::int64_t most_logit_rows, bool with_empty);

  [[nodiscard]] const std::vector<StepShape>& shapes() const noexcept { return shapes_; }
  /// Fills the batch up to the smallest shape that holds it, with rows of no sequence; which of shapes() that is. -1 if
  /// it is too large: nothing is changed then.
  [[nodiscard]] std::ptrdiff_t fill_up(Batch& batch) const;

 private:
  std::vector<StepShape> shapes_;  ///< by size
};

class StepGraphs {
 public:
  /// On a GPU, captures the model's steps of up to ModelLimits::max_decode_rows rows: all here, because instantiating a
  /// graph allocates, which may wait for kernels that wait for other ranks. On the host there are none.
  StepGraphs(Model& model, StreamView stream, bool with_empty);

  /// Loads the batch and enqueues its step, as a replay if there is a graph that holds it and `replay` is set. The
  /// logits of the batch's logit rows come first. Whether it was a replay.
  bool run(Model& model, Batch& batch, bool replay, StreamView stream) const;

 private:
  StepBuckets buckets_;
  std::vector<Graph> graphs_;  ///< of each shape
};

}  // namespace moelink::engine

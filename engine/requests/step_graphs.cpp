#include "engine/requests/step_graphs.hpp"

#include <algorithm>

namespace moelink::engine {

StepBuckets::StepBuckets(std::int64_t most, std::int64_t most_logit_rows, bool with_empty) {
  const auto add = [&](std::int64_t rows) {
    shapes_.push_back({.num_rows = rows, .num_logit_rows = std::min(rows, most_logit_rows)});
  };
  if (with_empty) {
    add(0);
  }
  for (std::int64_t rows = 1; rows < most; rows *= 2) {
    add(rows);
  }
  if (most > 0) {
    add(most);
  }
}

std::ptrdiff_t StepBuckets::fill_up(Batch& batch) const {
  const StepShape wanted = shape_of(batch);
  const auto shape = std::find_if(shapes_.begin(), shapes_.end(), [&](const StepShape& s) {
    return s.num_rows >= wanted.num_rows && s.num_logit_rows >= wanted.num_logit_rows;
  });
  if (shape == shapes_.end()) {
    return -1;
  }
  batch.rows.resize(static_cast<std::size_t>(shape->num_rows), {.token = 0, .position = 0, .sequence = -1});
  batch.logit_rows.resize(static_cast<std::size_t>(shape->num_logit_rows), 0);  // any row: nobody looks at them
  return shape - shapes_.begin();
}

StepGraphs::StepGraphs(Model& model, StreamView stream, bool with_empty) {
  if (stream.device().is_host()) {
    return;
  }
  const ModelLimits& limits = model.limits();
  buckets_ = StepBuckets(std::min(limits.max_decode_rows, limits.max_rows), limits.max_logit_rows, with_empty);
  model.time_exchange(false);
  for (std::size_t i = 0; i < buckets_.shapes().size(); ++i) {
    Batch inert;
    inert.rows.resize(static_cast<std::size_t>(buckets_.shapes()[i].num_rows),
                      {.token = 0, .position = 0, .sequence = -1});
    inert.logit_rows.resize(static_cast<std::size_t>(buckets_.shapes()[i].num_logit_rows), 0);
    model.load(inert, stream);
    stream.synchronize();  // loads have four places to copy from
    graphs_.push_back(Graph::record(stream, [&] { model.run(shape_of(inert), stream); }));
  }
  model.time_exchange(true);
}

bool StepGraphs::run(Model& model, Batch& batch, bool replay, StreamView stream) const {
  const std::ptrdiff_t graph = replay ? buckets_.fill_up(batch) : -1;
  model.load(batch, stream);
  if (graph < 0) {
    model.run(shape_of(batch), stream);
    return false;
  }
  graphs_[static_cast<std::size_t>(graph)].launch(stream);
  return true;
}

}  // namespace moelink::engine

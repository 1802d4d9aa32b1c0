// One step of a model: rows of any requests, together.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tokenizer/bpe.hpp"

namespace moelink::engine {

/// One token of one sequence. A step may hold any mix: a row of each of many sequences (decode), a run of rows of one
/// (a chunk of a prompt), or both. A row sees the rows of its sequence at positions up to its own: those of earlier
/// steps, whose keys and values are in the sequence's pages, and those of this step.
struct BatchRow {
  Token token = 0;
  std::int32_t position = 0;  ///< in the sequence, from 0
  std::int32_t sequence = 0;  ///< index into Batch::pages; -1: the row only fills the step up to a fixed size
};

/// In host memory.
struct Batch {
  std::vector<BatchRow> rows;
  /// By sequence: the pages of the cache that hold its positions, page i those from i * page_size. They must cover every
  /// position of the sequence's rows. Sequences may share pages that no row of this step writes.
  std::vector<std::vector<std::int32_t>> pages;
  /// Rows whose logits are wanted, in the order of the logits.
  std::vector<std::int32_t> logit_rows;
};

/// What determines the launches of a step, and so what a CUDA graph can be replayed for.
struct StepShape {
  std::int64_t num_rows = 0;
  std::int64_t num_logit_rows = 0;
  friend bool operator==(const StepShape&, const StepShape&) = default;
};
[[nodiscard]] inline StepShape shape_of(const Batch& batch) {
  return {.num_rows = static_cast<std::int64_t>(batch.rows.size()),
          .num_logit_rows = static_cast<std::int64_t>(batch.logit_rows.size())};
}

}  // namespace moelink::engine

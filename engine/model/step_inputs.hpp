// The arrays that a step's kernels read, in device memory, and their way there.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kernels/heads.cuh"
#include "engine/model/batch.hpp"
#include "engine/model/config.hpp"
#include "engine/model/model.hpp"
#include "moelink/buffer.hpp"

namespace moelink::engine {

class StepInputs {
 public:
  StepInputs(Device device, const ModelConfig& config, const ModelLimits& limits);

  /// See Model::load.
  void load(const Batch& batch, StreamView stream);

  [[nodiscard]] const std::int32_t* tokens() const noexcept { return row(0); }
  [[nodiscard]] const std::int32_t* logit_rows() const noexcept { return row(3); }
  [[nodiscard]] StepRows rows(std::int64_t num_rows) const noexcept;

 private:
  void check(const Batch& batch) const;
  void check_row(const Batch& batch, std::size_t index) const;
  [[nodiscard]] const std::int32_t* row(std::int64_t index) const noexcept {
    return buffer_.as<std::int32_t>() + index * limits_.max_rows;
  }

  // Tokens, positions, sequences and logit rows, max_rows each; then the page table, a row for each sequence.
  static constexpr std::int64_t kRowArrays = 4;
  static constexpr std::size_t kLoadsUnderWay = 4;

  std::int64_t vocab_size_;
  ModelLimits limits_;
  std::int64_t page_stride_;
  Buffer buffer_;
  std::vector<std::vector<std::int32_t>> staging_;  ///< used in turn: a copy may still read the last ones
  std::size_t next_ = 0;
};

}  // namespace moelink::engine

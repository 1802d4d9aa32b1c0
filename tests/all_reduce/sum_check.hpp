// Sums of small integers: exact in any order, so that a rank can check them without the others' data.
#pragma once

#include <cstdint>
#include <vector>

#include "moelink/all_reduce.hpp"
#include "moelink/communicator.hpp"

namespace moelink::testing {

/// What `rank` puts in; `call` tells calls apart, so that an old result is a wrong one.
inline float addend(int rank, std::int64_t call, std::int64_t i) {
  return static_cast<float>((i * 7 + call * 13 + rank * 5) % 251);
}

/// One call's memory on the host.
class SumCheck {
 public:
  explicit SumCheck(std::int64_t max_elements)
      : input_(static_cast<std::size_t>(max_elements)), output_(static_cast<std::size_t>(max_elements)) {}

  AllReduceArgs prepare(const Communicator& communicator, std::int64_t call, std::int64_t num_elements) {
    call_ = call;
    for (std::int64_t i = 0; i < num_elements; ++i) {
      input_[static_cast<std::size_t>(i)] = addend(communicator.rank(), call, i);
      output_[static_cast<std::size_t>(i)] = -1;
    }
    return {.input = input_.data(), .output = output_.data(), .num_elements = num_elements};
  }

  /// Elements that are not the sum over `num_ranks`.
  [[nodiscard]] std::int64_t count_wrong(int num_ranks, std::int64_t num_elements) const {
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < num_elements; ++i) {
      float sum = 0;
      for (int rank = 0; rank < num_ranks; ++rank) {
        sum += addend(rank, call_, i);
      }
      wrong += output_[static_cast<std::size_t>(i)] == sum ? 0 : 1;
    }
    return wrong;
  }

 private:
  std::int64_t call_ = 0;
  std::vector<float> input_;
  std::vector<float> output_;
};

}  // namespace moelink::testing

// One rank's part of measuring one message size with one algorithm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "moelink/all_reduce.hpp"
#include "moelink/buffer.hpp"
#include "perf/all_reduce/settings.hpp"
#include "perf/common/rank_alignment.hpp"
#include "perf/common/team.hpp"

namespace moelink::perf {

struct AllReduceResult {
  std::string plan;  ///< algorithm, grid and memory, as the library says; or why it did not run
  Percentiles us;    ///< of the slowest rank
  std::optional<std::int64_t> wrong;
  std::string first_wrong;
  bool ran = false;
};

class AllReduceBench {
 public:
  AllReduceBench(const Communicator& communicator, const AllReduceFlags& flags);

  /// Collective. Every rank gets the same result, but for first_wrong.
  [[nodiscard]] AllReduceResult run(AllReduceAlgorithm algorithm, std::int64_t num_elements);

 private:
  void fill_inputs(std::int64_t num_elements, std::uint64_t round);
  std::int64_t check_once(AllReduce& all_reduce, AllReduceAlgorithm algorithm, std::int64_t num_elements,
                          std::uint64_t round, std::string& first);
  [[nodiscard]] std::vector<double> time(AllReduce& all_reduce, std::int64_t num_elements);
  [[nodiscard]] void* output() const { return flags_.in_place ? input_.data() : output_.data(); }

  Communicator communicator_;
  const AllReduceFlags& flags_;
  Stream stream_;
  RankAlignment alignment_;
  Team team_;
  Buffer input_;
  Buffer output_;
};

}  // namespace moelink::perf

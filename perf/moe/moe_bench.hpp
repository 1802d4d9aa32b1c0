// Measures and checks one case: one model, one number of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "moelink/communicator.hpp"
#include "perf/common/copy_limit.hpp"
#include "perf/common/model.hpp"
#include "perf/common/progress.hpp"
#include "perf/common/statistics.hpp"
#include "perf/common/team.hpp"
#include "perf/moe/settings.hpp"

namespace moelink::perf {

/// Called between the library and the check, so that tests can plant a wrong value and see it found.
struct MoeHooks {
  std::function<void(MutableMatrixView rows, StreamView stream)> after_dispatch;
  std::function<void(MutableMatrixView output, StreamView stream)> after_combine;
};

/// What was found out about dispatch, or about combine. Bytes are per call, the mean over sets.
struct PhaseResult {
  std::string phase;
  Percentiles us = {};
  double logical_bytes = 0;
  double moved_bytes = 0;
  double limit_us = 0;                    ///< a copy that moves as many bytes
  std::optional<double> ceiling_us = {};  ///< CUDA: the best plain kernel that only moves the rows
  std::optional<double> naive_us = {};
  std::optional<std::int64_t> wrong = {};  ///< none: not checked
  std::string first_wrong = {};            ///< words for the first wrong value

  [[nodiscard]] double logical_gbps() const { return gbps(logical_bytes); }
  /// Local mode has no wire: what passes through memory, reads and writes.
  [[nodiscard]] double wire_gbps() const { return gbps(moved_bytes); }
  [[nodiscard]] double limit_fraction() const { return us.p50 > 0 ? limit_us / us.p50 : 0; }
  [[nodiscard]] std::optional<double> ceiling_fraction() const {
    return ceiling_us && us.p50 > 0 ? std::optional(*ceiling_us / us.p50) : std::nullopt;
  }

 private:
  [[nodiscard]] double gbps(double bytes) const { return us.p50 > 0 ? bytes / us.p50 / 1e3 : 0; }
};

struct MoeResult {
  PhaseResult dispatch{.phase = "dispatch"};
  PhaseResult combine{.phase = "combine"};
  int num_sets = 0;
  std::string plan;
};

class MoeBench {
 public:
  MoeBench(const MoeFlags& flags, const MoeSettings& settings, const MoeHooks& hooks);

  [[nodiscard]] MoeResult run(const Model& model, std::int64_t num_tokens, Progress& progress);

  [[nodiscard]] int num_threads() const noexcept { return team_.size(); }

 private:
  [[nodiscard]] int choose_num_sets(const Model& model, std::int64_t num_tokens) const;

  const MoeFlags& flags_;
  const MoeSettings& settings_;
  const MoeHooks& hooks_;
  Communicator communicator_;
  Team team_;
  Stream stream_;
  CopyLimit limit_;
};

}  // namespace moelink::perf

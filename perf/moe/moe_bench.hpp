// Measures and checks one case on one rank: one model, one number of tokens for each source.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "moelink/communicator.hpp"
#include "perf/common/copy_limit.hpp"
#include "perf/common/model.hpp"
#include "perf/common/progress.hpp"
#include "perf/common/rank_alignment.hpp"
#include "perf/common/statistics.hpp"
#include "perf/common/team.hpp"
#include "perf/moe/link_limit.hpp"
#include "perf/moe/moe_set.hpp"
#include "perf/moe/rival.hpp"
#include "perf/moe/settings.hpp"

namespace moelink::perf {

/// Called between the library and the check, so that tests can plant a wrong value and see it found.
struct MoeHooks {
  std::function<void(int rank, MutableMatrixView rows, StreamView stream)> after_dispatch;
  std::function<void(int rank, MutableMatrixView output, StreamView stream)> after_combine;
};

/// What was found out about dispatch, or about combine: times of the slowest rank, bytes of the busiest one per call,
/// the mean over sets. The same on every rank, but for the words.
struct PhaseResult {
  std::string phase;
  Percentiles us = {};
  std::optional<Percentiles> send_us = {};  ///< calls in halves: each
  std::optional<Percentiles> receive_us = {};
  std::optional<Percentiles> host_us = {};  ///< CUDA without a graph: what the calls cost the thread that makes them
  double logical_bytes = 0;
  double wire_bytes = 0;                   ///< to or from other ranks, the larger
  double moved_bytes = 0;                  ///< through memory
  double limit_us = 0;                     ///< a copy that moves as many bytes through memory
  std::optional<double> link_us = {};      ///< copies between ranks of as many bytes
  std::optional<double> ceiling_us = {};   ///< CUDA: the best plain kernel that only moves the rows inside this memory
  std::optional<double> baseline_us = {};  ///< another way to do the same
  std::optional<std::int64_t> wrong = {};  ///< over all ranks; none: not checked
  std::optional<double> error = {};        ///< of the output, relative to the one of rows that were not quantised
  std::string first_wrong = {};            ///< words for the first wrong value on this rank

  [[nodiscard]] double logical_gbps() const { return gbps(logical_bytes); }
  /// Local mode has no wire: what passes through memory, reads and writes.
  [[nodiscard]] double wire_gbps(bool local) const { return gbps(local ? moved_bytes : wire_bytes); }
  [[nodiscard]] double limit_fraction() const { return us.p50 > 0 ? limit_us / us.p50 : 0; }
  [[nodiscard]] std::optional<double> link_fraction() const { return fraction(link_us); }
  [[nodiscard]] std::optional<double> ceiling_fraction() const { return fraction(ceiling_us); }

 private:
  [[nodiscard]] double gbps(double bytes) const { return us.p50 > 0 ? bytes / us.p50 / 1e3 : 0; }
  [[nodiscard]] std::optional<double> fraction(const std::optional<double>& least_us) const {
    return least_us && us.p50 > 0 ? std::optional(*least_us / us.p50) : std::nullopt;
  }
};

struct MoeResult {
  PhaseResult dispatch{.phase = "dispatch"};
  PhaseResult combine{.phase = "combine"};
  int num_sets = 0;
  std::string plan;
};

class MoeBench {
 public:
  MoeBench(const MoeFlags& flags, const MoeSettings& settings, const Communicator& communicator, const MoeHooks& hooks);

  /// Sets of buffers that a case is timed on: as many as --sets says, or as its size asks for and memory has room for.
  /// Throws UsageError if there is not enough. Collective.
  [[nodiscard]] int choose_num_sets(const Model& model, const std::vector<std::int64_t>& tokens_of_source) const;

  /// Collective.
  [[nodiscard]] MoeResult run(const Model& model, const std::vector<std::int64_t>& tokens_of_source, int num_sets,
                              Progress& progress);

  [[nodiscard]] int num_threads() const noexcept { return team_.size(); }
  /// Why link_us is missing; empty: it is not.
  [[nodiscard]] const std::string& no_link_reason() const noexcept { return link_.reason(); }
  /// What the baseline does, or why it is missing; empty: there is none.
  [[nodiscard]] std::string baseline_words() const;

 private:
  struct Turns;

  [[nodiscard]] int wanted_sets(const Model& model, const std::vector<std::int64_t>& tokens_of_source) const;
  [[nodiscard]] Turns make_turns(MoeSets& sets, Rival* rival, MoeResult& result);
  void time(const Turns& turns, MoeResult& result);
  void check(MoeSets& sets, const Turns& turns, Rival* rival, MoeResult& result);
  struct Findings;
  void check_round(MoeSets& sets, const Turns& turns, Findings& findings);
  void check_rival(MoeSets& sets, const Turns& turns, Rival& rival);
  [[nodiscard]] std::optional<double> slowest(const std::optional<double>& mine) const;

  const MoeFlags& flags_;
  const MoeSettings& settings_;
  const MoeHooks& hooks_;
  Communicator communicator_;
  Team team_;
  Stream stream_;
  RankAlignment alignment_;
  CopyLimit limit_;
  LinkLimit link_;
  std::string no_collectives_reason_;
  std::unique_ptr<Collectives> collectives_;
};

}  // namespace moelink::perf

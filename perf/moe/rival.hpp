// Another way to do what a dispatch and its combine do, timed in turn with them: what a user would have without this
// library, or with less of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "moelink/communicator.hpp"
#include "perf/collectives/collectives.hpp"
#include "perf/moe/moe_set.hpp"

namespace moelink::perf {

class Rival {
 public:
  virtual ~Rival() = default;

  /// Enqueue one call on the data of a set. They take turns, as those of an Exchange. The rows go where the set's do.
  virtual void dispatch(std::size_t set) = 0;
  virtual void combine(std::size_t set) = 0;

  /// After a dispatch, the set's experts and a combine: compares the sums with the reference. The stream is idle.
  virtual void check_combine(std::size_t set, Team& team, Mismatches& mismatches) = 0;
};

using MoeSets = std::vector<std::unique_ptr<MoeSet>>;

/// What moe_perf compares a mode with where nothing else is asked for: "separate" for tensor parallel, "none" else.
[[nodiscard]] std::string baseline_name(const MoeFlags& flags, const MoeSettings& settings);
/// What a baseline moves rows with; none: it does not.
[[nodiscard]] std::optional<CollectivesKind> collectives_of_baseline(const std::string& name);
/// A line that says what it does.
[[nodiscard]] std::string baseline_words(const std::string& name, const MoeSettings& settings,
                                         const Collectives* collectives);

struct RivalTools {
  Communicator communicator;
  Collectives* collectives;  ///< null: none were asked for, or these ranks cannot have them
  StreamView stream;
  Team& team;
};

/// The rival of that name; null if this run has none. Collective.
[[nodiscard]] std::unique_ptr<Rival> make_rival(const std::string& name, const MoeSettings& settings,
                                                const MoeSets& sets, const RivalTools& tools);

}  // namespace moelink::perf

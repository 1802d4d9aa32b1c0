// Data parallel by one group of sends and receives: tokens are packed for the ranks that own their experts, each once,
// sent, and placed in expert order; parts of sums go the same way back and are added in the order of ranks. A local
// Exchange whose experts are the ranks packs tokens and adds parts; another one places rows and sums over this rank's
// experts. Counts, ids and weights are known beforehand, which costs this baseline nothing.
#pragma once

#include <vector>

#include "perf/collectives/collectives.hpp"
#include "perf/moe/rival.hpp"

namespace moelink::perf {

class SendReceive : public Rival {
 public:
  SendReceive(const MoeSets& sets, Collectives& collectives, StreamView stream);

  void dispatch(std::size_t set) override;
  void combine(std::size_t set) override;
  void check_combine(std::size_t set, Team& team, Mismatches& mismatches) override;

 private:
  /// What takes the place of one set's Exchange.
  struct Local {
    Exchange packer;  ///< its experts are the ranks
    Exchange placer;  ///< its tokens are those that arrive, its experts this rank's
    Buffer ranks_of_tokens;
    Buffer packed, arrived;    ///< token rows, by destination and by source
    Buffer ids, weights;       ///< of what arrives
    Buffer parts, parts_home;  ///< rows of the output type, by source and by destination
    Buffer output;
    RankRows sent, received;
    DispatchArgs pack, place;
    CombineArgs sum_parts, sum_home;
  };
  [[nodiscard]] Local make_local(const MoeSet& set) const;

  const MoeSets& sets_;
  Collectives& collectives_;
  StreamView stream_;
  std::vector<Local> locals_;
};

}  // namespace moelink::perf

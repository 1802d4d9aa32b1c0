// Data parallel by all-gather and reduce-scatter, the strong simple way for few ranks: every rank gets all tokens, ids and
// weights, dispatches and combines locally over its own experts, and the sums are reduced and scattered. Ids are turned
// into numbers of local experts beforehand, which costs this baseline nothing.
#pragma once

#include <vector>

#include "perf/collectives/collectives.hpp"
#include "perf/moe/rival.hpp"

namespace moelink::perf {

class AllGather : public Rival {
 public:
  AllGather(const MoeSettings& settings, const MoeSets& sets, Collectives& collectives, StreamView stream, Team& team);

  /// What sums are reduced in: fp32 on the host, where MPI knows no narrower floats; on GPUs the output type.
  [[nodiscard]] static DataType type_of_sums(const MoeSettings& settings);

  void dispatch(std::size_t set) override;
  void combine(std::size_t set) override;
  void check_combine(std::size_t set, Team& team, Mismatches& mismatches) override;

 private:
  /// What takes the place of one set's Exchange. Every rank's share is as large as the largest.
  struct Local {
    Exchange exchange;
    Buffer mine;                 ///< tokens, as all ranks give them: padded
    Buffer tokens;               ///< of all ranks
    Buffer my_routing, routing;  ///< ids and weights, likewise
    Buffer ids, weights;         ///< of all tokens: numbers of local experts
    Buffer sums;                 ///< of all tokens, over this rank's experts
    Buffer sum;                  ///< of this rank's tokens, over all ranks
    Buffer output;
    DispatchArgs dispatch;
    CombineArgs combine;
  };
  [[nodiscard]] Local make_local(const MoeSet& set);
  void round_sums(const Local& local);

  const MoeSettings& settings_;
  const MoeSets& sets_;
  Collectives& collectives_;
  StreamView stream_;
  Team& team_;
  DataType reduced_;
  std::vector<Local> locals_;
};

}  // namespace moelink::perf

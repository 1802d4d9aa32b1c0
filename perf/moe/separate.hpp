// Tensor parallel in separate launches: a local dispatch and combine over this rank's experts, then an all-reduce of the
// sums. Each rank's part is rounded to the output type before it is added.
#pragma once

#include <vector>

#include "moelink/all_reduce.hpp"
#include "perf/moe/rival.hpp"

namespace moelink::perf {

class Separate : public Rival {
 public:
  Separate(const MoeSettings& settings, const MoeSets& sets, const Communicator& communicator, StreamView stream);

  void dispatch(std::size_t set) override;
  void combine(std::size_t set) override;
  void check_combine(std::size_t set, Team& team, Mismatches& mismatches) override;

 private:
  /// What takes the place of one set's Exchange.
  struct Local {
    Exchange exchange;
    Buffer ids;     ///< numbers of this rank's experts; -1: not here
    Buffer output;  ///< this rank's parts, then the sums
    DispatchArgs dispatch;
    CombineArgs combine;
  };
  [[nodiscard]] Local make_local(const MoeSet& set) const;

  const MoeSets& sets_;
  StreamView stream_;
  std::vector<Local> locals_;
  AllReduce all_reduce_;
};

}  // namespace moelink::perf

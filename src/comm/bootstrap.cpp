#include "comm/bootstrap.hpp"
#include "base/text.hpp"

namespace moelink {

void check_contribution(Bootstrap& bootstrap, std::string_view what, std::size_t num_bytes) {
  if (num_bytes <= kMaxContributionBytes && !what.empty() && what.size() <= kMaxLabelBytes) {
    return;
  }
  // The other ranks are already on their way into this call: without word from here they would wait for the deadline.
  GroupFault fault{ErrorCode::invalid_argument, bootstrap.rank(),
                   text("rank ", bootstrap.rank(), " passed ", num_bytes, " bytes to the all-gather '",
                        what.substr(0, kMaxLabelBytes), "'; at most ", kMaxContributionBytes,
                        " bytes under a name of 1 to ", kMaxLabelBytes, " characters can be gathered")};
  bootstrap.abort(fault);
  throw Error(fault.code, fault.sentence);
}

std::string describe_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) {
      text += i + 1 == ranks.size() ? " and " : ", ";
    }
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace moelink

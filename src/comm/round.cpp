#include "comm/round.hpp"

#include <utility>

#include "base/text.hpp"
#include "comm/bootstrap.hpp"

namespace moelink {

Round::Round(int size)
    : arrived_(static_cast<std::size_t>(size)),
      contributions_(static_cast<std::size_t>(size)),
      why_away_(static_cast<std::size_t>(size)) {}

std::optional<GroupFault> Round::enter(int rank, std::string_view what, Bytes contribution,
                                       std::chrono::milliseconds patience) {
  if (!open()) {
    what_ = what;
    first_ = rank;
    deadline_ = Deadline(Deadline::Clock::time_point::max());
  }
  const auto index = static_cast<std::size_t>(rank);
  if (what_ != what) {
    return GroupFault{ErrorCode::mismatch, rank,
                      text("rank ", first_, " is in '", what_, "' while rank ", rank, " is in '", what,
                           "'; every rank must make the same calls in the same order")};
  }
  if (arrived_[index]) {
    return GroupFault{
        ErrorCode::out_of_order, rank,
        text("two calls of '", what, "' on rank ", rank, " are in flight at once; one thread at a time may call")};
  }
  for (int r = 0; r < size(); ++r) {
    if (!why_away_[static_cast<std::size_t>(r)].empty()) {
      return away(r);
    }
  }
  if (const Deadline mine = Deadline::after(patience); mine.when() < deadline_.when()) {
    deadline_ = mine;
    patience_ = patience;
  }
  contributions_[index] = std::move(contribution);
  arrived_[index] = true;
  ++num_arrived_;
  return std::nullopt;
}

std::optional<GroupFault> Round::set_away(int rank, std::string why) {
  auto& kept = why_away_[static_cast<std::size_t>(rank)];
  kept = std::move(why);
  return !kept.empty() && open() ? std::optional(away(rank)) : std::nullopt;
}

std::vector<Bytes> Round::finish() {
  const std::size_t num_ranks = contributions_.size();
  arrived_.assign(num_ranks, false);
  num_arrived_ = 0;
  return std::exchange(contributions_, std::vector<Bytes>(num_ranks));
}

GroupFault Round::expired() const {
  std::vector<int> missing;
  for (int r = 0; r < size(); ++r) {
    if (!arrived_[static_cast<std::size_t>(r)]) {
      missing.push_back(r);
    }
  }
  return {ErrorCode::timeout, missing.front(),
          text("'", what_, "': ", describe_ranks(missing), " of ", size(), " did not arrive within ",
               to_string(patience_))};
}

GroupFault Round::away(int rank) const {
  return {ErrorCode::peer, rank,
          text("rank ", rank, " cannot take part in '", what_, "': ", why_away_[static_cast<std::size_t>(rank)])};
}

}  // namespace moelink

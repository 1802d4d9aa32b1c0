// How ranks meet: the interface behind every Communicator. What waits here has a deadline, and what fails is told to
// every rank that can be reached (docs/bootstrap.md).
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "comm/fault_board.hpp"
#include "moelink/error.hpp"

namespace moelink {

/// Longest contribution of one rank to one all-gather. Descriptions and handles travel here, never payloads.
inline constexpr std::size_t kMaxContributionBytes = std::size_t{1} << 20;
/// Longest name of a collective.
inline constexpr std::size_t kMaxLabelBytes = 200;

/// One rank's membership. Collective calls are made by one thread of the rank at a time, in the same order on every
/// rank; abort() and faults() may be used from any thread. Destruction leaves the group in good order and is not
/// collective.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// Every rank's `mine` (any length up to kMaxContributionBytes, also different ones), in rank order. `what` names the
  /// collective in errors and is compared over ranks: ranks that take different turns get ErrorCode::mismatch instead
  /// of each other's data. Throws, and ends the group, when a rank does not arrive within the deadline, has left or
  /// died.
  [[nodiscard]] virtual std::vector<Bytes> all_gather(std::string_view what, std::span<const std::byte> mine,
                                                      std::chrono::milliseconds deadline) = 0;
  void barrier(std::string_view what, std::chrono::milliseconds deadline) { (void)all_gather(what, {}, deadline); }

  /// Ends the group: every rank that can be reached gets `fault`, unless it has met another first. Does not wait.
  virtual void abort(GroupFault fault) noexcept = 0;

  [[nodiscard]] virtual FaultBoard& faults() noexcept = 0;
};

/// all_gather of one plain value each.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> all_gather_value(Bootstrap& bootstrap, std::string_view what,
                                                                         const T& mine,
                                                                         std::chrono::milliseconds deadline) {
  const auto parts = bootstrap.all_gather(what, std::as_bytes(std::span(&mine, 1)), deadline);
  std::vector<T> all(parts.size());
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (parts[r].size() != sizeof(T)) {
      throw Error(ErrorCode::peer, text(what, ": rank ", r, " sent ", parts[r].size(), " bytes, expected ", sizeof(T)));
    }
    std::memcpy(&all[r], parts[r].data(), sizeof(T));
  }
  return all;
}

/// Throws ErrorCode::capacity or invalid_argument, after telling the other ranks, if an all-gather cannot carry this.
void check_contribution(Bootstrap& bootstrap, std::string_view what, std::size_t num_bytes);

/// "rank 3", "ranks 2, 5 and 7".
[[nodiscard]] std::string describe_ranks(std::span<const int> ranks);

}  // namespace moelink

// What symmetric memory needs of the ranks' bootstrap. src/comm implements it; transports stand below.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace moelink {

/// One rank's way to meet the others. Calls are collective: every rank makes the same ones in the same order. They
/// throw Error (timeout, peer, aborted) when a rank does not come; none waits forever.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Ranks with equal numbers can map each other's memory (design: one machine, or one NVLink fabric cluster and
  /// clique).
  [[nodiscard]] virtual int node_of(int rank) const = 0;

  /// `mine` of every rank, in rank order. all.size() == size() * mine.size(), and mine.size() is the same everywhere.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual void barrier() = 0;

  /// This rank has waited for another in vain, outside of the calls above: where that ends the group, the other ranks'
  /// calls throw `words` now, and this rank's next, instead of waiting for the same rank once more.
  virtual void give_up(std::string_view words) noexcept = 0;
};

}  // namespace moelink

// All-gather of plain values.
#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "transports/rendezvous.hpp"

namespace moelink {

/// Every rank's `mine`, in rank order. Collective; mine.size() must be equal everywhere.
template <class T>
[[nodiscard]] std::vector<T> gather(Rendezvous& rendezvous, std::span<const T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(rendezvous.size()) * mine.size());
  rendezvous.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  return all;
}

}  // namespace moelink

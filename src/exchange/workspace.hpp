// The device block of one Exchange, or of several that take turns.
#pragma once

#include "exchange/memory.hpp"
#include "moelink/buffer.hpp"

namespace moelink {

class Workspace::State {
 public:
  /// Waits until the words that kernels expect are in place: no phase, no tokens, no row of any entry.
  State(Device device, i64 size_bytes, i64 metadata_bytes);

  [[nodiscard]] const Buffer& memory() const noexcept { return memory_; }

  /// Whether an Exchange is between dispatch and combine here, and which one's routing the memory holds. Exchanges are
  /// known by an address of their own.
  const void* in_flight = nullptr;
  const void* last_routed = nullptr;

 private:
  Buffer memory_;
};

}  // namespace moelink

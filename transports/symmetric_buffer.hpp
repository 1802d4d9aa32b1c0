// Symmetric memory: the same number of bytes at every rank, mapped by every rank of the node.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "moelink/device.hpp"
#include "moelink/protocol/window.hpp"
#include "transports/memory.hpp"

namespace moelink {

/// Owns this rank's part and its mappings of the others'. Made by PeerGroup::allocate() (collective) or
/// allocate_in_process(). All bytes are zero before anybody can see them, so flags begin at epoch 0.
///
/// Destruction is local, in any order over ranks and buffers, and bounded: see docs/symmetric-memory.md. Kernels of
/// *this* rank that use the window must have ended; those of others need not.
class SymmetricBuffer {
 public:
  class State;

  SymmetricBuffer() noexcept;
  explicit SymmetricBuffer(std::unique_ptr<State> state) noexcept;
  ~SymmetricBuffer();
  SymmetricBuffer(SymmetricBuffer&& other) noexcept;
  SymmetricBuffer& operator=(SymmetricBuffer&& other) noexcept;

  /// Valid while this buffer lives. Everything in it is null in a buffer that owns nothing.
  [[nodiscard]] const Window& window() const noexcept;
  /// This rank's own part.
  [[nodiscard]] std::byte* data() const noexcept;
  /// As asked for; what was reserved is rounded up (memory_bytes()).
  [[nodiscard]] std::size_t size_bytes() const noexcept;
  [[nodiscard]] std::size_t memory_bytes() const noexcept;
  [[nodiscard]] MemoryKind kind() const noexcept;

  /// The group has failed: destruction will wait for nobody.
  void abandon() noexcept;

 private:
  std::unique_ptr<State> state_;
};

/// A rank of one process, for allocate_in_process().
struct InProcessRank {
  Device device = Device::host();
  int node = 0;  ///< ranks of different nodes do not map each other
};

/// Symmetric memory of ranks that are threads of this process, made by one call in one thread (nothing here waits for
/// another thread). result[r] is rank r's. Throws without leaving anything behind.
[[nodiscard]] std::vector<SymmetricBuffer> allocate_in_process(std::span<const InProcessRank> ranks,
                                                               std::size_t size_bytes);

}  // namespace moelink

// Puts between any two ranks, for programs that move bytes themselves; what dispatch and combine use between nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "moelink/communicator.hpp"
#include "moelink/export.hpp"

namespace moelink {

struct PutsConfig {
  /// "loopback" (ranks of one process), "verbs" or "ucx"; empty: MOELINK_PUT, else the first that works.
  std::string transport{};
  /// Puts in flight from one rank to another; further ones are not taken until some are sent.
  int depth = 128;
};

/// What has happened: a put of this rank needs its source no longer, or a put of another rank is here.
struct PutsEvent {
  bool arrived = false;
  int peer = -1;
  std::uint32_t immediate = 0;  ///< of the put that arrived
  std::uint64_t token = 0;      ///< of the put that was sent
};

/// One rank's access to a window of memory at every other rank. A put arrives once and whole, or the object fails; its
/// bytes are visible when its own event comes out of poll(). Nothing else has an order. For one thread.
class MOELINK_EXPORT Puts {
 public:
  /// Collective. `memory`: host memory of this rank, as long at all ranks; the caller's, until the object has gone. Puts
  /// read and write it.
  Puts(const Communicator& communicator, std::span<std::byte> memory, const PutsConfig& config = {});
  ~Puts();
  Puts(Puts&&) noexcept;
  Puts& operator=(Puts&&) noexcept;

  /// Starts a put of `size_bytes` from an offset in this rank's memory to an offset in that of `peer`, which is another
  /// rank. False if too many are in flight: poll() makes room. The bytes must not change until the event with `token`;
  /// of the puts in flight to one rank no two may have the same `immediate`. Throws Error (invalid_argument; peer, for
  /// good, naming the rank that failed).
  [[nodiscard]] bool put(int peer, std::size_t source_offset, std::size_t target_offset, std::size_t size_bytes,
                         std::uint32_t immediate, std::uint64_t token);
  /// Makes progress and reports up to events.size() events. Never waits. Throws as put().
  [[nodiscard]] std::size_t poll(std::span<PutsEvent> events);

  /// "verbs: mlx5_0 port 1, RoCE v2, GID 3".
  [[nodiscard]] std::string describe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelink

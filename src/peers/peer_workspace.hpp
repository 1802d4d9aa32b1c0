// The memory that the ranks of a node share for one object (an AllReduce, an Exchange), and its faults.
#pragma once

#include <optional>
#include <string>

#include "base/fault.hpp"
#include "comm/fault_board.hpp"
#include "moelink/buffer.hpp"
#include "moelink/communicator.hpp"
#include "moelink/protocol/fault.hpp"
#include "moelink/protocol/window.hpp"
#include "peers/communicator_rendezvous.hpp"
#include "peers/fault_watch.hpp"
#include "runtime/pinned_buffer.hpp"
#include "transports/peer_group.hpp"

namespace moelink {

/// Owns this rank's part of the symmetric memory, a fault word in it that peers can write, and the fault record. Zero
/// at first. Kernels that use the window or the fault context must have ended before this goes.
class PeerWorkspace {
 public:
  /// Collective over all ranks. `what` names the object in errors. Every rank passes the same `shared_bytes`. Throws
  /// ErrorCode::unsupported if ranks of one node cannot map each other. With Multicast::if_possible, window().multicast
  /// is set on every rank of a node or on none, and why_no_multicast() has the reason. `nodes`: CommunicatorRendezvous.
  PeerWorkspace(const Communicator& communicator, std::string what, i64 shared_bytes,
                Multicast multicast = Multicast::no, std::vector<int> nodes = {});
  ~PeerWorkspace();
  PeerWorkspace(const PeerWorkspace&) = delete;
  PeerWorkspace& operator=(const PeerWorkspace&) = delete;

  /// Bytes a rank takes from its device for `shared_bytes`, fault word included.
  [[nodiscard]] static i64 memory_bytes(i64 shared_bytes);

  /// The caller's bytes begin at offset 0.
  [[nodiscard]] const Window& window() const noexcept { return memory_.window(); }
  [[nodiscard]] const FaultContext& fault_context() const noexcept { return fault_context_; }
  [[nodiscard]] MemoryKind memory_kind() const noexcept { return memory_.kind(); }

  /// Why window().multicast is null though it was asked for; empty if it is not.
  [[nodiscard]] std::string why_no_multicast() const;

  /// Throws the fault that a kernel met here, after telling the group; else the group's, if it has one. Never waits;
  /// but where kernels gave up because another rank's group failed, for 0.2 s at most, for the reason.
  void check();

 private:
  void check_reason_of_abort() const;
  void tell_group(const FaultRecord& fault) const noexcept;

  Communicator communicator_;
  std::string what_;
  CommunicatorRendezvous rendezvous_;
  PeerGroup peers_;
  SymmetricBuffer memory_;
  Buffer peer_words_;    // addresses of the peers' fault words
  PinnedBuffer record_;  // one FaultRecord
  FaultContext fault_context_;
  FaultBoard::Subscription subscription_;
  std::optional<FaultWatch> watch_;
};

}  // namespace moelink

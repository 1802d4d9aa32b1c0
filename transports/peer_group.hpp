// The ranks of a node that map each other's memory, and how.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "moelink/device.hpp"
#include "transports/descriptors/private_directory.hpp"
#include "transports/reach.hpp"
#include "transports/rendezvous.hpp"
#include "transports/symmetric_buffer.hpp"

namespace moelink {

struct PeerGroupOptions {
  /// How long this rank waits for its peers while memory is mapped.
  std::chrono::milliseconds deadline{30'000};
  /// How long a destructor waits for peers that may still write this rank's memory (ipc and multicast only).
  std::chrono::milliseconds farewell_deadline{5'000};
  /// Where sockets are made for a moment; 0700, this user's.
  std::string socket_directory = PrivateDirectory::default_parent();
  /// Consider no other kind.
  std::optional<MemoryKind> only;
};

/// One rank's view of its node. `rendezvous` must outlive it.
class PeerGroup {
 public:
  /// Collective over all ranks, of all nodes. Throws ErrorCode::unsupported, on every rank, if a node has ranks that
  /// cannot map each other; the sentence holds the report.
  PeerGroup(Rendezvous& rendezvous, Device device, PeerGroupOptions options);
  ~PeerGroup();
  PeerGroup(PeerGroup&&) noexcept;

  /// Collective over all ranks; `size_bytes` must be equal everywhere (else ErrorCode::mismatch, naming rank and
  /// values). On return every peer has mapped every other. If it fails anywhere it throws everywhere, and nothing is
  /// left behind.
  [[nodiscard]] SymmetricBuffer allocate(std::size_t size_bytes);

  [[nodiscard]] const ReachFacts& facts() const noexcept { return facts_; }
  /// This node's kind and why it is not another one.
  [[nodiscard]] const MemoryChoice& choice() const noexcept { return choice_; }

 private:
  Rendezvous& rendezvous_;
  PeerGroupOptions options_;
  ReachFacts facts_;
  MemoryChoice choice_;
  std::shared_ptr<MemoryTransport> transport_;
};

}  // namespace moelink

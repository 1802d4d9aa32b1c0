// The ranks of a node that map each other's memory, and how.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "moelink/device.hpp"
#include "transports/peer_options.hpp"
#include "transports/reach.hpp"
#include "transports/rendezvous.hpp"
#include "transports/symmetric_buffer.hpp"

namespace moelink {

/// One rank's view of its node. `rendezvous` must outlive it.
class PeerGroup {
 public:
  /// Collective over all ranks, of all nodes. Throws ErrorCode::unsupported, on every rank, if a node has ranks that
  /// cannot map each other; the sentence holds the report.
  PeerGroup(Rendezvous& rendezvous, Device device, PeerGroupOptions options);
  ~PeerGroup();
  PeerGroup(PeerGroup&&) noexcept;

  /// Collective: see allocate_symmetric().
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

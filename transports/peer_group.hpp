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

enum class Multicast : bool { no, if_possible };

/// One rank's view of its node. `rendezvous` must outlive it.
class PeerGroup {
 public:
  /// Collective over all ranks, of all nodes. Throws ErrorCode::unsupported, on every rank, if a node has ranks that
  /// cannot map each other; the sentence holds the report.
  PeerGroup(Rendezvous& rendezvous, Device device, PeerGroupOptions options);
  ~PeerGroup();
  PeerGroup(PeerGroup&&) noexcept;

  /// Collective: see allocate_symmetric().
  /// With Multicast::if_possible, Window::multicast is set where why_no_multicast() is empty and the driver agrees;
  /// where it does not, a warning is printed once.
  [[nodiscard]] SymmetricBuffer allocate(std::size_t size_bytes, Multicast multicast = Multicast::no);

  [[nodiscard]] const ReachFacts& facts() const noexcept { return facts_; }
  /// This node's kind and why it is not another one.
  [[nodiscard]] const MemoryChoice& choice() const noexcept { return choice_; }

  /// Why buffers of this node get no multicast mapping; empty if they may.
  [[nodiscard]] const std::string& why_no_multicast() const noexcept { return why_no_multicast_; }

 private:
  void add_multicast(SymmetricBuffer::State& state);

  Rendezvous& rendezvous_;
  PeerGroupOptions options_;
  ReachFacts facts_;
  MemoryChoice choice_;
  std::string why_no_multicast_;
  std::shared_ptr<MemoryTransport> transport_;
};

}  // namespace moelink

// File descriptors from rank to rank over Unix sockets (SCM_RIGHTS). Needs no capability and no ptrace permission: only
// one file system that all ranks of a machine see, and one user.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "transports/descriptors/private_directory.hpp"

namespace moelink {

/// Where a rank takes descriptors. Travels by Rendezvous::all_gather. The nonce, known to the group alone, keeps apart
/// exchanges and strangers of the same user.
struct DescriptorAddress {
  std::array<char, 108> path{};  ///< sockaddr_un::sun_path
  std::uint64_t nonce = 0;
};

/// One exchange among ranks of one machine. Until it is destroyed there is a socket file; afterwards there is nothing.
class DescriptorExchange {
 public:
  /// Listens in a private directory below `parent`.
  DescriptorExchange(int rank, const std::string& parent, std::chrono::milliseconds deadline);

  [[nodiscard]] const DescriptorAddress& address() const noexcept { return address_; }

  struct Peer {
    int rank;
    DescriptorAddress address;
  };
  /// Gives `descriptor` to each rank of `to` and takes one from each rank of `from`; result[i] is that of from[i].
  /// Those in `to` must call it with this rank in their `from`. Strangers (other users, wrong nonce, garbage, silence)
  /// are dropped without disturbing it. Throws ErrorCode::timeout naming the ranks that did not send, ErrorCode::system
  /// if a peer cannot be reached.
  [[nodiscard]] std::vector<UniqueFd> run(int descriptor, std::span<const Peer> to, std::span<const Peer> from);

 private:
  int rank_;
  Deadline deadline_;
  PrivateDirectory directory_;
  UniqueFd listener_;
  DescriptorAddress address_;
};

}  // namespace moelink

// One NIC of a rank: a port, a queue pair for each remote, one completion queue.
#pragma once

#if MOELINK_HAVE_VERBS

#include <memory>
#include <string>
#include <vector>

#include "transports/put.hpp"
#include "transports/verbs/library.hpp"
#include "transports/verbs/port.hpp"

namespace moelink {

/// Every port of this machine.
[[nodiscard]] std::vector<PortInfo> list_ports(const VerbsLibrary& verbs);

/// How a queue pair is reached.
struct NicAddress {
  LinkLayer link_layer = LinkLayer::infiniband;
  std::uint16_t lid = 0;
  std::array<std::uint8_t, 16> gid{};
  int mtu = 1;                             ///< enum ibv_mtu
  std::uint32_t packet_number = 0;         ///< first of every queue pair
  std::vector<std::uint32_t> queue_pairs;  ///< by rank; 0 where there is none
};

/// Registered memory.
using MemoryHandle = std::unique_ptr<ibv_mr, int (*)(ibv_mr*)>;

class VerbsNic {
 public:
  VerbsNic(const VerbsLibrary& verbs, const PortInfo& port, const VerbsSettings& settings, const PutOptions& options);
  VerbsNic(const VerbsNic&) = delete;
  VerbsNic& operator=(const VerbsNic&) = delete;

  [[nodiscard]] NicAddress address() const;
  [[nodiscard]] std::string describe() const { return moelink::describe(port_, gid_); }
  [[nodiscard]] std::size_t max_message_bytes() const noexcept { return max_message_bytes_; }

  /// Readies the queue pair of `peer`: it may send once the peer has done the same.
  void connect(int peer, const NicAddress& theirs);
  [[nodiscard]] MemoryHandle register_memory(const PutMemory& memory) const;

  /// Adds a write with immediate to what post() will hand over. `wr_id` comes back with the completion.
  void queue_write(int peer, std::uint64_t wr_id, const ibv_sge& source, std::uint64_t target, std::uint32_t rkey,
                   std::uint32_t immediate);
  /// Hands over all that was queued, one call to the NIC per peer.
  void post();

  /// Completions: of writes with the wr_id given, of arrivals with kArrival and the peer.
  static constexpr std::uint64_t kArrival = std::uint64_t{1} << 63;
  [[nodiscard]] int poll(std::span<ibv_wc> completions);
  /// An immediate of `peer` has been taken out: makes room for another.
  void give_back_receive(int peer);

  /// The rank at the other end of a queue pair; -1 if there is none.
  [[nodiscard]] int peer_of(std::uint32_t queue_pair) const;
  /// Takes one event of the device, if there is one. Fatal ones throw PutFailure, naming the peer where one queue pair
  /// is concerned; of the others the last is kept in note().
  void check_events();
  /// "; mlx5_0 reported: port error", or nothing: for the words of a failure.
  [[nodiscard]] const std::string& note() const noexcept { return note_; }
  [[nodiscard]] const VerbsLibrary& library() const noexcept { return verbs_; }

 private:
  template <class T>
  using Handle = std::unique_ptr<T, int (*)(T*)>;
  struct Work {
    ibv_send_wr request;
    ibv_sge source;
  };
  struct Link {
    Handle<ibv_qp> queue_pair{nullptr, nullptr};
    std::vector<Work> queued;  // capacity: as deep as the send queue, so that nothing moves
    int receives_to_post = 0;
  };

  void create_link(int peer);
  void modify(int peer, ibv_qp_attr& attributes, int mask, const char* state);
  void post_receives(int peer, int count);

  const VerbsLibrary& verbs_;
  PortInfo port_;
  GidEntry gid_;
  VerbsSettings settings_;
  PutOptions options_;
  std::uint32_t packet_number_ = 0;
  std::size_t max_message_bytes_ = 0;
  std::string note_;
  Handle<ibv_context> context_;
  Handle<ibv_pd> domain_;
  Handle<ibv_cq> completions_;
  std::vector<Link> links_;   // by rank
  std::vector<int> touched_;  // ranks with queued writes
};

}  // namespace moelink

#endif

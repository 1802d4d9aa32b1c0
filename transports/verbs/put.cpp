// NOTE [lanes]. A rank's NICs are its lanes. A put goes over all of them: each lane writes its shard and the same
// immediate, and the receiver lets the immediate out when every lane has brought it: counted, because lanes know
// nothing of each other. Two ranks use as many lanes as the one with fewer has; both know from the addresses.
#include "transports/verbs/put.hpp"

#include "base/text.hpp"

#if MOELINK_HAVE_VERBS

#include <arpa/inet.h>

#include <algorithm>
#include <unordered_map>

#include "transports/pci_path.hpp"
#include "transports/put_check.hpp"
#include "transports/verbs/nic.hpp"
#include "transports/verbs/shard.hpp"

namespace moelink {
namespace {

/// Empty polls between two looks for events of the device: each is a system call.
constexpr int kPollsPerLook = 256;
constexpr std::size_t kMaxLaneCount = static_cast<std::size_t>(kMaxLanes);

void write_address(ByteWriter& writer, const NicAddress& nic) {
  writer.u32(static_cast<std::uint32_t>(nic.link_layer));
  writer.u32(nic.lid);
  writer.raw(std::as_bytes(std::span(nic.gid)));
  writer.u32(static_cast<std::uint32_t>(nic.mtu));
  writer.u32(nic.packet_number);
  for (const std::uint32_t queue_pair : nic.queue_pairs) writer.u32(queue_pair);
}

NicAddress read_address(ByteReader& reader, int num_ranks) {
  NicAddress nic;
  nic.link_layer = reader.u32() == 0 ? LinkLayer::infiniband : LinkLayer::ethernet;
  nic.lid = static_cast<std::uint16_t>(reader.u32());
  std::ranges::copy(reader.raw(nic.gid.size()), reinterpret_cast<std::byte*>(nic.gid.data()));
  nic.mtu = static_cast<int>(reader.u32());
  nic.packet_number = reader.u32();
  for (int rank = 0; rank < num_ranks; ++rank) nic.queue_pairs.push_back(reader.u32());
  return nic;
}

class VerbsLocal final : public LocalRegion {
 public:
  VerbsLocal(const PutTransport* owner, const PutMemory& memory, std::vector<MemoryHandle> handles)
      : LocalRegion(owner, memory), handles_(std::move(handles)) {}

  [[nodiscard]] Bytes key() const override {
    ByteWriter writer;
    writer.u64(reinterpret_cast<std::uintptr_t>(memory().data));
    writer.u64(memory().size_bytes);
    writer.u32(static_cast<std::uint32_t>(handles_.size()));
    for (const MemoryHandle& handle : handles_) writer.u32(handle->rkey);
    return seal(PutKind::verbs, writer.bytes());
  }
  [[nodiscard]] std::uint32_t local_key(std::size_t lane) const { return handles_[lane]->lkey; }

 private:
  std::vector<MemoryHandle> handles_;  // by lane
};

class VerbsRemote final : public RemoteRegion {
 public:
  VerbsRemote(const PutTransport* owner, int peer, std::uint64_t address, std::size_t size_bytes,
              std::vector<std::uint32_t> keys)
      : RemoteRegion(owner, peer, size_bytes), address_(address), keys_(std::move(keys)) {}
  [[nodiscard]] std::uint64_t address() const noexcept { return address_; }
  [[nodiscard]] std::uint32_t key(std::size_t lane) const { return keys_[lane]; }

 private:
  std::uint64_t address_;
  std::vector<std::uint32_t> keys_;  // by lane
};

class VerbsPut final : public PutTransport {
 public:
  VerbsPut(const PutOptions& options, const VerbsSettings& settings)
      : options_(options), peers_(static_cast<std::size_t>(options.num_ranks)) {
    const VerbsLibrary& verbs = VerbsLibrary::get(settings.library);
    for (const PortInfo& port : choose_ports(list_ports(verbs), settings, pci_path_of(options.device))) {
      nics_.push_back(std::make_unique<VerbsNic>(verbs, port, settings, options));
    }
    slots_.resize(options.remotes.size() * static_cast<std::size_t>(options.send_depth));
    for (std::size_t slot = slots_.size(); slot > 0; --slot) free_slots_.push_back(slot - 1);
  }

  [[nodiscard]] PutKind kind() const noexcept override { return PutKind::verbs; }
  [[nodiscard]] std::string describe() const override {
    std::string all;
    for (const auto& nic : nics_) all += (all.empty() ? "" : " + ") + nic->describe();
    return all;
  }

  [[nodiscard]] Bytes address() const override {
    ByteWriter writer;
    writer.u32(static_cast<std::uint32_t>(nics_.size()));
    for (const auto& nic : nics_) write_address(writer, nic->address());
    return seal(PutKind::verbs, writer.bytes());
  }

  void connect(std::span<const Bytes> addresses) override {
    for (const int peer : options_.remotes) {
      ByteReader reader(unseal(PutKind::verbs, "address", peer, addresses[static_cast<std::size_t>(peer)]));
      const std::size_t theirs = reader.u32();
      if (theirs == 0 || theirs > kMaxLaneCount) {
        throw Error(ErrorCode::peer,
                    text("rank ", peer, " says that it has ", theirs, " NICs; expected 1 to ", kMaxLanes));
      }
      Peer& entry = peers_[static_cast<std::size_t>(peer)];
      entry.num_lanes = static_cast<int>(std::min(theirs, nics_.size()));
      for (int lane = 0; lane < entry.num_lanes; ++lane) {
        nics_[static_cast<std::size_t>(lane)]->connect(peer, read_address(reader, options_.num_ranks));
      }
    }
  }

  [[nodiscard]] std::unique_ptr<LocalRegion> add_region(const PutMemory& memory) override {
    check_memory(memory);
    std::vector<MemoryHandle> handles;
    for (const auto& nic : nics_) handles.push_back(nic->register_memory(memory));
    return std::make_unique<VerbsLocal>(this, memory, std::move(handles));
  }

  [[nodiscard]] std::unique_ptr<RemoteRegion> import_region(int peer, std::span<const std::byte> key) override {
    check_peer(options_, peer);
    ByteReader reader(unseal(PutKind::verbs, "key", peer, key));
    const std::uint64_t address = reader.u64();
    const std::size_t size_bytes = reader.u64();
    std::vector<std::uint32_t> keys(reader.u32());
    const Peer& entry = peers_[static_cast<std::size_t>(peer)];
    if (keys.size() < static_cast<std::size_t>(entry.num_lanes) || keys.size() > kMaxLaneCount) {
      throw Error(ErrorCode::peer,
                  text("the key of rank ", peer, " is of ", keys.size(), " NICs, its address of ", entry.num_lanes));
    }
    for (std::uint32_t& one : keys) one = reader.u32();
    return std::make_unique<VerbsRemote>(this, peer, address, size_bytes, std::move(keys));
  }

  [[nodiscard]] std::size_t put(std::span<const Put> puts) override {
    failure_.check();
    check_puts(*this, puts, max_put_bytes());
    std::size_t count = 0;
    while (count < puts.size() && queue(puts[count])) ++count;
    guarded([&] {
      for (const auto& nic : nics_) nic->post();
    });
    return count;
  }

  [[nodiscard]] std::size_t poll(std::span<PutEvent> events) override {
    failure_.check();
    std::size_t count = 0;
    guarded([&] {
      for (const auto& nic : nics_) count += poll_nic(*nic, events.subspan(count));
      if (count == 0 && ++empty_polls_ % kPollsPerLook == 0) {
        for (const auto& nic : nics_) nic->check_events();
      }
    });
    return count;
  }

 private:
  struct Peer {
    int num_lanes = 0;
    int in_flight = 0;
    std::unordered_map<std::uint32_t, std::array<std::uint16_t, kMaxLaneCount>> seen;  // immediates, by lane
  };
  struct Slot {
    int peer = -1;
    int lanes_left = 0;
    std::uint64_t token = 0;
  };

  /// A failure inside is kept, and thrown by every later call.
  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (const PutFailure& failure) {
      failure_.keep(failure);
      throw;
    }
  }

  [[nodiscard]] std::size_t max_put_bytes() const {
    std::size_t most = ~std::size_t{0};
    for (const auto& nic : nics_) most = std::min(most, nic->max_message_bytes());
    return most;
  }

  /// False if the peer's queue is full.
  bool queue(const Put& put) {
    const auto& target = static_cast<const VerbsRemote&>(*put.target);
    Peer& peer = peers_[static_cast<std::size_t>(target.peer())];
    if (peer.num_lanes == 0) {
      throw Error(ErrorCode::out_of_order, text("a put to rank ", target.peer(), " before connect()"));
    }
    if (peer.in_flight == options_.send_depth) return false;
    ++peer.in_flight;
    const std::size_t slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = {.peer = target.peer(), .lanes_left = peer.num_lanes, .token = put.token};
    const auto* source = static_cast<const VerbsLocal*>(put.source);
    for (int lane = 0; lane < peer.num_lanes; ++lane) {
      const auto at = static_cast<std::size_t>(lane);
      const Shard shard = shard_of(put.size_bytes, lane, peer.num_lanes);
      ibv_sge from{};
      if (shard.size_bytes != 0) {
        from.addr =
            reinterpret_cast<std::uintptr_t>(source->memory().data) + put.source_offset_bytes + shard.offset_bytes;
        from.length = static_cast<std::uint32_t>(shard.size_bytes);
        from.lkey = source->local_key(at);
      }
      nics_[at]->queue_write(target.peer(), slot, from, target.address() + put.target_offset_bytes + shard.offset_bytes,
                             target.key(at), put.immediate);
    }
    return true;
  }

  std::size_t poll_nic(VerbsNic& nic, std::span<PutEvent> events) {
    std::array<ibv_wc, 32> completions;
    std::size_t count = 0;
    while (count < events.size()) {
      const std::size_t most = std::min(completions.size(), events.size() - count);
      const int num = nic.poll(std::span(completions).first(most));
      for (int i = 0; i < num; ++i) {
        count += take(nic, completions[static_cast<std::size_t>(i)], events[count]) ? 1 : 0;
      }
      if (static_cast<std::size_t>(num) < most) break;
    }
    return count;
  }

  /// Whether the completion makes an event.
  bool take(VerbsNic& nic, const ibv_wc& completion, PutEvent& event) {
    if (completion.status != IBV_WC_SUCCESS) throw failure_of(nic, completion);
    if ((completion.wr_id & VerbsNic::kArrival) == 0) return take_sent(completion.wr_id, event);
    const auto peer = static_cast<int>(completion.wr_id & ~VerbsNic::kArrival);
    nic.give_back_receive(peer);
    if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
      throw PutFailure(peer, text("rank ", peer, " sent a message that is no put (opcode ",
                                  static_cast<int>(completion.opcode), "); do all ranks run the same build?"));
    }
    const std::uint32_t immediate = ntohl(completion.imm_data);
    if (!is_complete(peer, lane_of(nic), immediate)) return false;
    event = {.kind = PutEvent::Kind::arrived, .peer = peer, .immediate = immediate};
    return true;
  }

  bool take_sent(std::size_t at, PutEvent& event) {
    Slot& slot = slots_[at];
    if (--slot.lanes_left != 0) return false;
    --peers_[static_cast<std::size_t>(slot.peer)].in_flight;
    event = {.kind = PutEvent::Kind::sent, .peer = slot.peer, .token = slot.token};
    free_slots_.push_back(at);
    return true;
  }

  /// Counts an immediate that came over `lane`; true when it has come over all of them.
  bool is_complete(int peer, std::size_t lane, std::uint32_t immediate) {
    Peer& entry = peers_[static_cast<std::size_t>(peer)];
    if (entry.num_lanes == 1) return true;
    auto& seen = entry.seen[immediate];
    ++seen[lane];
    const auto used = std::span(seen).first(static_cast<std::size_t>(entry.num_lanes));
    if (std::ranges::find(used, 0) != used.end()) return false;
    for (std::uint16_t& one : used) --one;
    if (std::ranges::all_of(used, [](std::uint16_t one) { return one == 0; })) entry.seen.erase(immediate);
    return true;
  }

  [[nodiscard]] std::size_t lane_of(const VerbsNic& nic) const {
    return static_cast<std::size_t>(std::ranges::find(nics_, &nic, [](const auto& one) { return one.get(); }) -
                                    nics_.begin());
  }

  /// What a completion with an error means. The device's events, if there are any, say more.
  PutFailure failure_of(VerbsNic& nic, const ibv_wc& completion) {
    nic.check_events();
    const int peer = nic.peer_of(completion.qp_num);
    const char* hint = completion.status == IBV_WC_RETRY_EXC_ERR || completion.status == IBV_WC_RNR_RETRY_EXC_ERR
                           ? ": that rank, its NIC or the way to it is gone"
                       : completion.status == IBV_WC_REM_ACCESS_ERR ? ": that rank has taken back the memory"
                       : completion.status == IBV_WC_WR_FLUSH_ERR   ? ": the connection had broken before"
                                                                    : "";
    return {peer,
            text("puts between rank ", options_.rank, " and rank ", peer, " over ", nic.describe(), " failed with '",
                 nic.library().wc_status_str(completion.status), "' (status ", static_cast<int>(completion.status),
                 ", vendor code ", completion.vendor_err, ")", hint, nic.note())};
  }

  PutOptions options_;
  std::vector<std::unique_ptr<VerbsNic>> nics_;  // by lane
  std::vector<Peer> peers_;                      // by rank
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_slots_;
  int empty_polls_ = 0;
  FailureKeeper failure_;
};

}  // namespace

std::unique_ptr<PutTransport> make_verbs_put(const PutOptions& options, const VerbsSettings& settings) {
  return std::make_unique<VerbsPut>(options, settings);
}

}  // namespace moelink

#else

namespace moelink {

std::unique_ptr<PutTransport> make_verbs_put(const PutOptions& /*options*/, const VerbsSettings& /*settings*/) {
  throw Error(ErrorCode::unsupported, "this build has no verbs (libibverbs-dev was not found at configure time)");
}

}  // namespace moelink

#endif

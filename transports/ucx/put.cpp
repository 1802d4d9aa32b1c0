// A put is one active message: a header that says where the payload goes, and the payload. The receiver's callback
// checks the header against its regions, so that a put never writes where it may not, on any network. Small payloads
// come with the message and are copied; large ones are fetched by UCX's rendezvous, straight into the region.
//
// Callbacks run inside worker_progress(), on the thread that polls; they record what happened and never throw.
#include "transports/ucx/put.hpp"

#include "base/text.hpp"

#if MOELINK_HAVE_UCX

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <unordered_map>

#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/system_error.hpp"
#include "transports/put_check.hpp"
#include "transports/ucx/worker.hpp"

namespace moelink {
namespace {

constexpr unsigned kMessageId = 1;
/// Steps of UCX that one poll() takes at most while they bring no event: who polls has other things to look at.
constexpr int kMostSteps = 256;

struct Header {
  std::uint64_t nonce = 0;  ///< the receiver's: whoever does not know it is a stranger
  std::uint64_t region = 0;
  std::uint64_t offset_bytes = 0;
  std::int32_t sender = -1;
  std::uint32_t immediate = 0;
};

class UcxPut;

struct Peer {
  UcxPut* owner = nullptr;
  UcxEndpoint* endpoint = nullptr;  // null before connect()
  std::uint64_t nonce = 0;
  int in_flight = 0;  // puts of this rank
  [[nodiscard]] int rank() const noexcept { return endpoint->rank; }
};

class UcxLocal final : public LocalRegion {
 public:
  UcxLocal(UcxPut& transport, const PutMemory& memory, std::uint64_t id);
  ~UcxLocal() override;
  [[nodiscard]] Bytes key() const override {
    ByteWriter writer;
    writer.u64(id_);
    writer.u64(size_bytes());
    return seal(PutKind::ucx, writer.bytes());
  }

 private:
  UcxPut& transport_;
  std::uint64_t id_;
};

class UcxRemote final : public RemoteRegion {
 public:
  UcxRemote(const PutTransport* owner, int peer, std::uint64_t id, std::size_t size_bytes)
      : RemoteRegion(owner, peer, size_bytes), id_(id) {}
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

 private:
  std::uint64_t id_;
};

/// A put of this rank until UCX needs its source no longer.
struct Sending {
  Peer* peer = nullptr;
  std::uint64_t token = 0;
  Header header;
};

/// A large put of a peer while UCX fetches it.
struct Receiving {
  UcxPut* owner = nullptr;
  int sender = -1;
  std::uint32_t immediate = 0;
  std::uint64_t region = 0;
};

class UcxPut final : public PutTransport {
 public:
  UcxPut(const UcxLibrary& ucx, const PutOptions& options)
      : ucx_(ucx),
        options_(options),
        nonce_(random_nonce()),
        peers_(static_cast<std::size_t>(options.num_ranks)),
        worker_(ucx, options, kMessageId, &UcxPut::on_message, this) {}
  ~UcxPut() override {
    worker_.close_endpoints(/*gently=*/true);
    end_requests();
  }

  [[nodiscard]] PutKind kind() const noexcept override { return PutKind::ucx; }
  [[nodiscard]] std::string describe() const override {
    return text("UCX ", ucx_.get_version_string(), ", UCX_TLS=", Environment::process("UCX_TLS").value_or("all"));
  }

  [[nodiscard]] Bytes address() const override {
    ByteWriter writer;
    writer.u64(nonce_);
    writer.block(worker_.address());
    return seal(PutKind::ucx, writer.bytes());
  }

  void connect(std::span<const Bytes> addresses) override {
    for (const int rank : options_.remotes) {
      ByteReader reader(unseal(PutKind::ucx, "address", rank, addresses[static_cast<std::size_t>(rank)]));
      Peer& peer = peers_[static_cast<std::size_t>(rank)];
      peer.nonce = reader.u64();
      worker_.connect(rank, reader.block());
      peer.owner = this;
      peer.endpoint = &worker_.endpoint(rank);
    }
  }

  [[nodiscard]] std::unique_ptr<LocalRegion> add_region(const PutMemory& memory) override {
    check_memory(memory);
    return std::make_unique<UcxLocal>(*this, memory, ++last_region_);
  }

  [[nodiscard]] std::unique_ptr<RemoteRegion> import_region(int peer, std::span<const std::byte> key) override {
    check_peer(options_, peer);
    ByteReader reader(unseal(PutKind::ucx, "key", peer, key));
    const std::uint64_t id = reader.u64();
    return std::make_unique<UcxRemote>(this, peer, id, reader.u64());
  }

  [[nodiscard]] std::size_t put(std::span<const Put> puts) override {
    failure_.check();
    check_puts(*this, puts, ~std::size_t{0});
    for (std::size_t i = 0; i < puts.size(); ++i) {
      if (!start(puts[i])) return i;
    }
    return puts.size();
  }

  [[nodiscard]] std::size_t poll(std::span<PutEvent> events) override {
    failure_.check();
    // While events wait for the caller there is no progress: what arrives meanwhile waits in the network.
    for (int step = 0; step < kMostSteps && events_.empty() && broken_rank_ == kNobody; ++step) {
      if (!worker_.progress()) break;
    }
    fail_if_broken();
    std::size_t count = 0;
    for (; count < events.size() && !events_.empty(); ++count) {
      events[count] = events_.front();
      events_.pop_front();
    }
    return count;
  }

  /// Regions that peers may write, by the number in their key.
  void open_region(std::uint64_t id, const PutMemory& memory) { regions_.emplace(id, Region{memory, 0}); }
  /// After what is on its way into it: for a while. Then a peer is stopped in the middle, and without the connection
  /// nobody writes; UCX completes what was being received.
  void close_region(std::uint64_t id) {
    const auto is_over = [&] { return regions_.at(id).num_receiving == 0; };
    if (!worker_.progress_until(is_over, Deadline::after(kUcxPatience))) {
      worker_.close_endpoints(/*gently=*/false);
      if (!worker_.progress_until(is_over, Deadline::after(kUcxPatience))) worker_.keep(regions_.at(id).last_sender);
    }
    regions_.erase(id);
  }

 private:
  struct Region {
    PutMemory memory;
    int num_receiving = 0;
    int last_sender = -1;  // of what is or was being received
  };
  static constexpr int kNobody = -2;

  static std::uint64_t random_nonce() {
    std::uint64_t nonce = 0;
    if (::getrandom(&nonce, sizeof(nonce), 0) != static_cast<ssize_t>(sizeof(nonce))) {
      throw system_error("getrandom failed");
    }
    return nonce;
  }

  /// After the connections are closed, which completes what was under way, if only with an error.
  void end_requests() noexcept {
    const auto find_busy = [&] { return std::ranges::find_if(peers_, [](const Peer& p) { return p.in_flight != 0; }); };
    const auto is_over = [&] { return find_busy() == peers_.end(); };
    if (!worker_.progress_until(is_over, Deadline::after(kUcxPatience))) worker_.keep(find_busy()->rank());
  }

  /// False if the peer's queue is full.
  bool start(const Put& put) {
    const auto& target = static_cast<const UcxRemote&>(*put.target);
    Peer& peer = peers_[static_cast<std::size_t>(target.peer())];
    if (peer.endpoint == nullptr || peer.endpoint->handle == nullptr) {
      throw Error(ErrorCode::out_of_order, text("a put to rank ", target.peer(), ", to which there is no connection"));
    }
    if (peer.endpoint->status != UCS_OK) fail(peer.rank(), peer.endpoint->status);
    if (peer.in_flight == options_.send_depth) return false;
    auto* sending = new Sending{.peer = &peer,
                                .token = put.token,
                                .header = {.nonce = peer.nonce,
                                           .region = target.id(),
                                           .offset_bytes = put.target_offset_bytes,
                                           .sender = options_.rank,
                                           .immediate = put.immediate}};
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = is_eager(put) ? UCP_AM_SEND_FLAG_EAGER : 0;
    params.cb.send = &UcxPut::on_sent;
    params.user_data = sending;
    const std::byte* source = put.source != nullptr ? put.source->memory().data + put.source_offset_bytes : nullptr;
    ++peer.in_flight;
    peer.endpoint->was_used = true;
    void* request = ucx_.am_send_nbx(peer.endpoint->handle, kMessageId, &sending->header, sizeof(Header), source,
                                     put.size_bytes, &params);
    if (!UCS_PTR_IS_PTR(request)) finish_send(sending, UCS_PTR_STATUS(request));
    return true;
  }

  /// Over tcp UCX asks the receiver first from some 20 KB on, which costs a chunk of 32 KB twice its time: measured 27
  /// instead of 13 us, 2.3 instead of 3.6 GB/s. From 256 KB on there is no difference.
  [[nodiscard]] bool is_eager(const Put& put) const {
    constexpr std::size_t kMostEagerBytes = std::size_t{128} << 10;
    return put.size_bytes <= kMostEagerBytes && !user_says_when_ &&
           (put.source == nullptr || put.source->memory().device.is_host());
  }

  void finish_send(Sending* sending, ucs_status_t status) {
    Peer& peer = *sending->peer;
    --peer.in_flight;
    if (status == UCS_OK) {
      events_.push_back({.kind = PutEvent::Kind::sent, .peer = peer.rank(), .token = sending->token});
    } else {
      note_broken(peer.rank(), status);
    }
    delete sending;
  }
  static void on_sent(void* request, ucs_status_t status, void* user) {
    auto* sending = static_cast<Sending*>(user);
    UcxPut& self = *sending->peer->owner;
    self.finish_send(sending, status);
    self.ucx_.request_free(request);
  }

  static ucs_status_t on_message(void* arg, const void* header_bytes, std::size_t header_length, void* data,
                                 std::size_t length, const ucp_am_recv_param_t* param) {
    UcxPut& self = *static_cast<UcxPut*>(arg);
    Header header;
    if (header_length != sizeof(header)) return UCS_OK;  // a stranger
    std::memcpy(&header, header_bytes, sizeof(header));
    if (header.nonce != self.nonce_) return UCS_OK;
    Region* region = self.find_target(header, length);
    if (region == nullptr && length != 0) return UCS_OK;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return self.fetch(header, *region, data, length);
    std::byte* target = region != nullptr ? region->memory.data + header.offset_bytes : nullptr;
    if (length != 0 && !region->memory.device.is_host()) return self.fetch(header, *region, data, length);
    if (length != 0) std::memcpy(target, data, length);
    self.arrive(header.sender, header.immediate);
    return UCS_OK;
  }

  /// The region, if the sender is a remote and the payload lies inside; else null, and the sender is to blame.
  Region* find_target(const Header& header, std::size_t length) {
    const auto found = regions_.find(header.region);
    const bool is_inside = found != regions_.end() && header.offset_bytes <= found->second.memory.size_bytes &&
                           length <= found->second.memory.size_bytes - header.offset_bytes;
    if (is_inside) return &found->second;
    if (length != 0) {
      blame_ = text("rank ", header.sender, " put ", length, " bytes at offset ", header.offset_bytes, " of region ",
                    header.region, ", which rank ", options_.rank, " does not have, or not so large");
      broken_rank_ = header.sender;
    }
    return nullptr;
  }

  /// Has UCX bring the payload into the region: out of the peer's memory, or to a GPU.
  ucs_status_t fetch(const Header& header, Region& region, void* data, std::size_t length) {
    auto* receiving = new Receiving{this, header.sender, header.immediate, header.region};
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.cb.recv_am = &UcxPut::on_fetched;
    params.user_data = receiving;
    ++region.num_receiving;
    region.last_sender = header.sender;
    void* request =
        ucx_.am_recv_data_nbx(worker_.handle(), data, region.memory.data + header.offset_bytes, length, &params);
    if (!UCS_PTR_IS_PTR(request)) finish_fetch(receiving, UCS_PTR_STATUS(request));
    return UCS_INPROGRESS;
  }
  void finish_fetch(Receiving* receiving, ucs_status_t status) {
    --regions_.at(receiving->region).num_receiving;
    if (status == UCS_OK) {
      arrive(receiving->sender, receiving->immediate);
    } else {
      note_broken(receiving->sender, status);
    }
    delete receiving;
  }
  static void on_fetched(void* request, ucs_status_t status, std::size_t /*length*/, void* user) {
    auto* receiving = static_cast<Receiving*>(user);
    UcxPut& self = *receiving->owner;
    self.finish_fetch(receiving, status);
    self.ucx_.request_free(request);
  }

  void arrive(int sender, std::uint32_t immediate) {
    events_.push_back({.kind = PutEvent::Kind::arrived, .peer = sender, .immediate = immediate});
  }

  void note_broken(int rank, ucs_status_t status) {
    if (broken_rank_ != kNobody) return;
    broken_rank_ = rank;
    blame_ = sentence_of(rank, status);
  }
  [[nodiscard]] std::string sentence_of(int rank, ucs_status_t status) const {
    return text("the connection of rank ", options_.rank, " with rank ", rank,
                " over UCX broke: ", ucx_.status_string(status), "; that rank, or the way to it, is gone");
  }
  [[noreturn]] void fail(int rank, ucs_status_t status) { failure_.fail(rank, sentence_of(rank, status)); }
  void fail_if_broken() {
    if (broken_rank_ != kNobody) failure_.fail(broken_rank_, blame_);
  }

  const UcxLibrary& ucx_;
  const bool user_says_when_ = Environment::process("UCX_RNDV_THRESH").has_value();
  PutOptions options_;
  std::uint64_t nonce_;
  std::vector<Peer> peers_;  // by rank; never moves, for callbacks point into it
  std::unordered_map<std::uint64_t, Region> regions_;
  std::uint64_t last_region_ = 0;
  std::deque<PutEvent> events_;
  int broken_rank_ = kNobody;
  std::string blame_;
  FailureKeeper failure_;
  UcxWorker worker_;  // goes first: its callbacks use the rest
};

UcxLocal::UcxLocal(UcxPut& transport, const PutMemory& memory, std::uint64_t id)
    : LocalRegion(&transport, memory), transport_(transport), id_(id) {
  transport_.open_region(id, memory);
}
UcxLocal::~UcxLocal() { transport_.close_region(id_); }

}  // namespace

std::unique_ptr<PutTransport> make_ucx_put(const PutOptions& options) {
  return make_ucx_put_over(UcxLibrary::get(), options);
}
std::unique_ptr<PutTransport> make_ucx_put_over(const UcxLibrary& ucx, const PutOptions& options) {
  return std::make_unique<UcxPut>(ucx, options);
}

}  // namespace moelink

#else

namespace moelink {

std::unique_ptr<PutTransport> make_ucx_put(const PutOptions& /*options*/) {
  throw Error(ErrorCode::unsupported, "this build has no UCX (libucx-dev was not found at configure time)");
}

}  // namespace moelink

#endif

// A put is one active message: a header that says where the payload goes, and the payload. The receiver's callback
// checks the header against its regions, so that a put never writes where it may not, on any network. Small payloads
// come with the message and are copied; large ones are fetched by UCX's rendezvous, straight into the region.
//
// Callbacks run inside worker_progress(), on the thread that polls; they record what happened and never throw.
#include "transports/ucx/put.hpp"

#include "base/text.hpp"

#if MOELINK_HAVE_UCX

#include <sys/random.h>

#include <cstring>
#include <deque>
#include <unordered_map>

#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/system_error.hpp"
#include "transports/put_check.hpp"
#include "transports/ucx/library.hpp"

namespace moelink {
namespace {

constexpr unsigned kMessageId = 1;
/// How long a destructor lets UCX hand its last messages to the network.
constexpr std::chrono::milliseconds kFarewell{500};
/// A segment of tcp: the largest chunk of a mode, and headers.
constexpr const char* kSegment = "132k";

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
  int rank = -1;
  std::uint64_t nonce = 0;
  ucp_ep_h endpoint = nullptr;
  int in_flight = 0;             // puts of this rank
  bool was_used = false;         // by puts of this rank
  bool is_flushed = false;       // before it is closed
  ucs_status_t status = UCS_OK;  // what the endpoint failed with
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
  explicit UcxPut(const PutOptions& options)
      : ucx_(UcxLibrary::get()), options_(options), peers_(static_cast<std::size_t>(options.num_ranks)) {
    if (::getrandom(&nonce_, sizeof(nonce_), 0) != static_cast<ssize_t>(sizeof(nonce_))) {
      throw system_error("getrandom failed");
    }
    try {
      create_worker();
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~UcxPut() override { destroy(); }

  [[nodiscard]] PutKind kind() const noexcept override { return PutKind::ucx; }
  [[nodiscard]] std::string describe() const override {
    return text("UCX ", ucx_.get_version_string(), ", UCX_TLS=", Environment::process("UCX_TLS").value_or("all"));
  }

  [[nodiscard]] Bytes address() const override {
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    check(ucx_.worker_get_address(worker_, &address, &length), "asking UCX for its address");
    ByteWriter writer;
    writer.u64(nonce_);
    writer.block(std::as_bytes(std::span(reinterpret_cast<const char*>(address), length)));
    ucx_.worker_release_address(worker_, address);
    return seal(PutKind::ucx, writer.bytes());
  }

  void connect(std::span<const Bytes> addresses) override {
    for (const int rank : options_.remotes) {
      ByteReader reader(unseal(PutKind::ucx, "address", rank, addresses[static_cast<std::size_t>(rank)]));
      Peer& peer = peers_[static_cast<std::size_t>(rank)];
      peer.owner = this;
      peer.rank = rank;
      peer.nonce = reader.u64();
      const auto address = reader.block();
      ucp_ep_params_t params{};
      params.field_mask =
          UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
      params.address = reinterpret_cast<const ucp_address_t*>(address.data());
      params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      params.err_handler = {&UcxPut::on_broken, &peer};
      check(ucx_.ep_create(worker_, &params, &peer.endpoint), text("connecting to rank ", rank));
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
    while (events_.empty() && ucx_.worker_progress(worker_) != 0 && broken_rank_ == kNobody) {
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
  /// After what is on its way into it.
  void close_region(std::uint64_t id) {
    const auto is_written = [&] { return regions_.at(id).num_receiving != 0; };
    const Deadline deadline = Deadline::after(kFarewell);
    while (is_written() && !deadline.expired()) ucx_.worker_progress(worker_);
    if (is_written()) {  // a peer is stopped in the middle: without the connection nobody writes
      close_endpoints(/*gently=*/false);
      // No deadline: who called frees the memory next, and a closed connection completes what it was receiving.
      while (is_written()) ucx_.worker_progress(worker_);
    }
    regions_.erase(id);
  }

 private:
  struct Region {
    PutMemory memory;
    int num_receiving = 0;
  };
  static constexpr int kNobody = -2;

  void check(ucs_status_t status, const std::string& what) const {
    if (status != UCS_OK) {
      throw Error(ErrorCode::system, text(what, " failed: ", ucx_.status_string(status)));
    }
  }

  /// By default UCX cuts what goes over tcp into pieces of 8 KB, which the receiver joins in memory of its own: one
  /// more copy, and pages that come and go with every chunk, an eighth of all time. What the user sets stays.
  void widen_segments(ucp_config_t& config) const {
    const bool uses_tcp = Environment::process("UCX_TLS").value_or("tcp").find("tcp") != std::string::npos;
    for (const char* name : {"TX_SEG_SIZE", "RX_SEG_SIZE"}) {
      if (!uses_tcp || Environment::process(text("UCX_TCP_", name).c_str())) continue;
      ucx_.config_modify(&config, name, kSegment);  // versions that know no such setting go on without
    }
  }

  void create_worker() {
    ucp_config_t* config = nullptr;
    check(ucx_.config_read(nullptr, nullptr, &config), "reading the UCX_ variables");
    widen_segments(*config);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    params.features = UCP_FEATURE_AM;
    params.estimated_num_eps = options_.remotes.size();
    const ucs_status_t status = ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    ucx_.config_release(config);
    check(status, "starting UCX");
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // set up by one thread, then polled by another
    check(ucx_.worker_create(context_, &worker, &worker_), "making a UCX worker");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = &UcxPut::on_message;
    handler.arg = this;
    check(ucx_.worker_set_am_recv_handler(worker_, &handler), "preparing UCX to receive");
  }

  void destroy() noexcept {
    if (worker_ != nullptr) {
      flush_endpoints();
      close_endpoints(/*gently=*/true);
      ucx_.worker_destroy(worker_);
    }
    if (context_ != nullptr) ucx_.cleanup(context_);
  }

  /// Has UCX hand over what endpoints still hold, as far as peers take it soon.
  void flush_endpoints() noexcept {
    std::vector<std::pair<Peer*, void*>> flushing;
    for (Peer& peer : peers_) {
      if (peer.endpoint == nullptr || !peer.was_used || peer.status != UCS_OK) continue;
      const ucp_request_param_t params{};
      flushing.emplace_back(&peer, ucx_.ep_flush_nbx(peer.endpoint, &params));
    }
    const Deadline deadline = Deadline::after(kFarewell);
    for (const auto& [peer, request] : flushing) peer->is_flushed = finish(request, deadline);
  }

  /// Closes those that are open. Gently those that hold nothing; the others by force, which cancels what is under way:
  /// UCX 1.13 ends the process if a worker goes with requests, and if a connection that is closed gently, but was never
  /// used, is refused meanwhile.
  void close_endpoints(bool gently) noexcept {
    std::vector<void*> closing;
    for (Peer& peer : peers_) {
      if (peer.endpoint == nullptr) continue;
      ucp_request_param_t params{};
      params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      params.flags = gently && peer.is_flushed && peer.status == UCS_OK ? 0 : UCP_EP_CLOSE_FLAG_FORCE;
      closing.push_back(ucx_.ep_close_nbx(peer.endpoint, &params));
      peer.endpoint = nullptr;
    }
    const Deadline deadline = Deadline::after(kFarewell);
    for (void* request : closing) finish(request, deadline);
  }

  /// Whether a request has ended well by then.
  bool finish(void* request, const Deadline& deadline) noexcept {
    if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_STATUS(request) == UCS_OK;
    while (ucx_.request_check_status(request) == UCS_INPROGRESS && !deadline.expired()) ucx_.worker_progress(worker_);
    const bool is_good = ucx_.request_check_status(request) == UCS_OK;
    ucx_.request_free(request);
    return is_good;
  }

  /// False if the peer's queue is full.
  bool start(const Put& put) {
    const auto& target = static_cast<const UcxRemote&>(*put.target);
    Peer& peer = peers_[static_cast<std::size_t>(target.peer())];
    if (peer.endpoint == nullptr) {
      throw Error(ErrorCode::out_of_order, text("a put to rank ", target.peer(), " before connect()"));
    }
    if (peer.status != UCS_OK) fail(peer.rank, peer.status);
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
    peer.was_used = true;
    void* request =
        ucx_.am_send_nbx(peer.endpoint, kMessageId, &sending->header, sizeof(Header), source, put.size_bytes, &params);
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
      events_.push_back({.kind = PutEvent::Kind::sent, .peer = peer.rank, .token = sending->token});
    } else {
      note_broken(peer.rank, status);
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
    void* request = ucx_.am_recv_data_nbx(worker_, data, region.memory.data + header.offset_bytes, length, &params);
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

  /// A peer that leaves in good order breaks its connection, too: it is a failure if something was under way, or when
  /// somebody puts to it.
  static void on_broken(void* arg, ucp_ep_h /*endpoint*/, ucs_status_t status) {
    static_cast<Peer*>(arg)->status = status;
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
  std::uint64_t nonce_ = 0;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<Peer> peers_;  // by rank; never moves, for callbacks point into it
  std::unordered_map<std::uint64_t, Region> regions_;
  std::uint64_t last_region_ = 0;
  std::deque<PutEvent> events_;
  int broken_rank_ = kNobody;
  std::string blame_;
  FailureKeeper failure_;
};

UcxLocal::UcxLocal(UcxPut& transport, const PutMemory& memory, std::uint64_t id)
    : LocalRegion(&transport, memory), transport_(transport), id_(id) {
  transport_.open_region(id, memory);
}
UcxLocal::~UcxLocal() { transport_.close_region(id_); }

}  // namespace

std::unique_ptr<PutTransport> make_ucx_put(const PutOptions& options) { return std::make_unique<UcxPut>(options); }

}  // namespace moelink

#else

namespace moelink {

std::unique_ptr<PutTransport> make_ucx_put(const PutOptions& /*options*/) {
  throw Error(ErrorCode::unsupported, "this build has no UCX (libucx-dev was not found at configure time)");
}

}  // namespace moelink

#endif

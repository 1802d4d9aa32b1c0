#include "transports/loopback/put.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>

#include "base/text.hpp"
#include "transports/loopback/inbox.hpp"
#include "transports/process_token.hpp"
#include "transports/put_check.hpp"

namespace moelink {
namespace {

using loopback::Inbox;
using loopback::SharedRegion;

class LoopbackLocal final : public LocalRegion {
 public:
  LoopbackLocal(const PutTransport* owner, const PutMemory& memory)
      : LocalRegion(owner, memory), shared_(std::make_shared<SharedRegion>()) {
    shared_->memory = memory;
    id_ = loopback::publish(shared_);
  }
  ~LoopbackLocal() override {
    const std::unique_lock lock(shared_->mutex);  // after the copies that run
    shared_->memory.data = nullptr;
  }
  [[nodiscard]] Bytes key() const override {
    ByteWriter writer;
    writer.u64(process_token());
    writer.u64(id_);
    return seal(PutKind::loopback, writer.bytes());
  }

 private:
  std::shared_ptr<SharedRegion> shared_;
  std::uint64_t id_ = 0;
};

class LoopbackRemote final : public RemoteRegion {
 public:
  LoopbackRemote(const PutTransport* owner, int peer, std::shared_ptr<SharedRegion> shared, std::size_t size_bytes)
      : RemoteRegion(owner, peer, size_bytes), shared_(std::move(shared)) {}

  /// False if the owner has taken the memory back.
  [[nodiscard]] bool store(std::size_t offset_bytes, const std::byte* source, std::size_t size_bytes) const {
    if (size_bytes == 0) return true;  // only the immediate: no memory is concerned
    const std::shared_lock lock(shared_->mutex);
    if (shared_->memory.data == nullptr) return false;
    std::memcpy(shared_->memory.data + offset_bytes, source, size_bytes);
    return true;
  }

 private:
  std::shared_ptr<SharedRegion> shared_;
};

class LoopbackPut final : public PutTransport {
 public:
  explicit LoopbackPut(const PutOptions& options)
      : options_(options),
        inbox_(std::make_shared<Inbox>(static_cast<std::size_t>(options.num_ranks),
                                       static_cast<std::size_t>(options.receive_depth))),
        inbox_id_(loopback::publish(inbox_)),
        peers_(static_cast<std::size_t>(options.num_ranks)) {}
  ~LoopbackPut() override { inbox_->close(); }

  [[nodiscard]] PutKind kind() const noexcept override { return PutKind::loopback; }
  [[nodiscard]] std::string describe() const override { return "copies inside the process"; }

  [[nodiscard]] Bytes address() const override {
    ByteWriter writer;
    writer.u64(process_token());
    writer.u64(inbox_id_);
    return seal(PutKind::loopback, writer.bytes());
  }

  void connect(std::span<const Bytes> addresses) override {
    for (const int peer : options_.remotes) {
      const auto at = static_cast<std::size_t>(peer);
      ByteReader reader(unseal(PutKind::loopback, "address", peer, addresses[at]));
      require_same_process(peer, reader.u64());
      peers_[at] = loopback::find_inbox(reader.u64());
      if (peers_[at] == nullptr) {
        throw Error(ErrorCode::peer, text("rank ", peer, " left before rank ", options_.rank, " could connect to it"));
      }
    }
  }

  [[nodiscard]] std::unique_ptr<LocalRegion> add_region(const PutMemory& memory) override {
    check_memory(memory);
    if (!memory.device.is_host()) {
      throw Error(ErrorCode::unsupported, text("loopback puts copy host memory, not that of ", memory.device.name(),
                                               "; stage it in pinned memory"));
    }
    return std::make_unique<LoopbackLocal>(this, memory);
  }

  [[nodiscard]] std::unique_ptr<RemoteRegion> import_region(int peer, std::span<const std::byte> key) override {
    check_peer(options_, peer);
    ByteReader reader(unseal(PutKind::loopback, "key", peer, key));
    require_same_process(peer, reader.u64());
    auto shared = loopback::find_region(reader.u64());
    if (shared == nullptr) {
      throw Error(ErrorCode::peer, text("the region of rank ", peer, " is gone; its key is of no use any longer"));
    }
    const std::size_t size_bytes = shared->memory.size_bytes;
    return std::make_unique<LoopbackRemote>(this, peer, std::move(shared), size_bytes);
  }

  [[nodiscard]] std::size_t put(std::span<const Put> puts) override {
    failure_.check();
    check_puts(*this, puts, std::numeric_limits<std::size_t>::max());
    for (std::size_t i = 0; i < puts.size(); ++i) {
      if (!start(puts[i])) return i;
    }
    return puts.size();
  }

  [[nodiscard]] std::size_t poll(std::span<PutEvent> events) override {
    failure_.check();
    std::size_t count = 0;
    for (; count < events.size() && !sent_.empty(); ++count) {
      events[count] = sent_.front();
      sent_.pop_front();
    }
    return count + inbox_->take(events.subspan(count));
  }

 private:
  void require_same_process(int peer, std::uint64_t token) const {
    if (token != process_token()) {
      throw Error(ErrorCode::unsupported, text("rank ", peer, " is in another process than rank ", options_.rank,
                                               "; loopback puts stay inside one. Use ucx or verbs"));
    }
  }

  /// False if there is no room.
  bool start(const Put& put) {
    const auto& target = static_cast<const LoopbackRemote&>(*put.target);
    const int peer = target.peer();
    Inbox* inbox = peers_[static_cast<std::size_t>(peer)].get();
    if (inbox == nullptr) {
      throw Error(ErrorCode::out_of_order, text("a put to rank ", peer, " before connect()"));
    }
    const std::byte* source = put.source != nullptr ? put.source->memory().data + put.source_offset_bytes : nullptr;
    const auto copy = [&] { return target.store(put.target_offset_bytes, source, put.size_bytes); };
    switch (inbox->deliver(options_.rank, put.immediate, copy)) {
      case Inbox::Outcome::full:
        return false;
      case Inbox::Outcome::closed:
        failure_.fail(
            peer, text("rank ", peer, " has left, or taken back the region that rank ", options_.rank, " puts into"));
      case Inbox::Outcome::delivered:
        break;
    }
    sent_.push_back({.kind = PutEvent::Kind::sent, .peer = peer, .token = put.token});
    return true;
  }

  PutOptions options_;
  std::shared_ptr<Inbox> inbox_;
  std::uint64_t inbox_id_;
  std::vector<std::shared_ptr<Inbox>> peers_;  // by rank
  std::deque<PutEvent> sent_;
  FailureKeeper failure_;
};

}  // namespace

std::unique_ptr<PutTransport> make_loopback_put(const PutOptions& options) {
  return std::make_unique<LoopbackPut>(options);
}

}  // namespace moelink

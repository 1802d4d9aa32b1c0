// Memory one puts into: the interface that every transport between nodes implements, in <transport>/put.{hpp,cpp}. The
// contract, its reasons and how to add a transport: docs/puts.md.
//
// NOTE [unordered puts]. A put copies bytes of this rank's memory into a peer's and then tells the peer one number, the
// immediate. Promised: the put arrives once, whole, or the transport fails; its bytes are visible to whoever has seen
// its own immediate come out of poll(). Nothing else has an order: not two puts to one peer, not a put and an immediate
// of another, not arrival there and `sent` here. Whoever needs to know that several puts are there counts their
// immediates.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "moelink/device.hpp"
#include "moelink/error.hpp"

namespace moelink {

/// Kinds of transport. The order is the order of preference between nodes.
enum class PutKind : unsigned char {
  loopback,  ///< ranks of one process; tests, and single-node runs that play several nodes
  verbs,     ///< RDMA: InfiniBand and RoCE, through libibverbs
  ucx,       ///< whatever UCX finds: tcp and shared memory anywhere, RDMA where there is some
};
inline constexpr int kNumPutKinds = 3;

[[nodiscard]] constexpr std::string_view name_of(PutKind kind) noexcept {
  constexpr std::array<std::string_view, kNumPutKinds> kNames = {"loopback", "verbs", "ucx"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// What a rank tells a transport at construction.
struct PutOptions {
  int rank = 0;
  int num_ranks = 1;
  std::vector<int> remotes{};      ///< ranks to put to and to hear from; all of them list this rank, too
  Device device = Device::host();  ///< where this rank's regions are, unless they are host memory
  int send_depth = 128;            ///< puts in flight to one peer; put() takes no more until some are sent
  int receive_depth = 512;         ///< immediates of one peer that may wait for poll(); more wait at the peer
  std::chrono::milliseconds deadline{30'000};  ///< longest wait of connect() and of destructors
};

/// Memory to be put from and into. The caller owns it and keeps it as long as the region lives.
struct PutMemory {
  std::byte* data = nullptr;
  std::size_t size_bytes = 0;
  Device device = Device::host();
};

/// The transport has failed, for good; names the peer where one is to blame. Later calls throw the same again, and only
/// destruction is left.
class PutFailure : public Error {
 public:
  PutFailure(int peer, const std::string& sentence, const std::source_location& where = std::source_location::current())
      : Error(ErrorCode::peer, sentence, where), peer_(peer), sentence_(sentence) {}
  /// -1: this rank's own device or memory.
  [[nodiscard]] int peer() const noexcept { return peer_; }
  /// what() without the code and the place.
  [[nodiscard]] const std::string& sentence() const noexcept { return sentence_; }

 private:
  int peer_;
  std::string sentence_;
};

class PutTransport;

/// Memory of this rank that the transport knows. Goes before its transport, and after the last `sent` of its puts.
class LocalRegion {
 public:
  LocalRegion(const PutTransport* owner, const PutMemory& memory) noexcept : owner_(owner), memory_(memory) {}
  virtual ~LocalRegion() = default;
  LocalRegion(const LocalRegion&) = delete;
  LocalRegion& operator=(const LocalRegion&) = delete;

  /// What a peer needs to put into this memory: any number of peers, any number of times.
  [[nodiscard]] virtual Bytes key() const = 0;

  [[nodiscard]] const PutTransport* owner() const noexcept { return owner_; }
  [[nodiscard]] const PutMemory& memory() const noexcept { return memory_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return memory_.size_bytes; }

 private:
  const PutTransport* owner_;
  PutMemory memory_;
};

/// Memory of a peer, as its key described it. Goes before its transport.
class RemoteRegion {
 public:
  RemoteRegion(const PutTransport* owner, int peer, std::size_t size_bytes) noexcept
      : owner_(owner), peer_(peer), size_bytes_(size_bytes) {}
  virtual ~RemoteRegion() = default;
  RemoteRegion(const RemoteRegion&) = delete;
  RemoteRegion& operator=(const RemoteRegion&) = delete;

  [[nodiscard]] const PutTransport* owner() const noexcept { return owner_; }
  [[nodiscard]] int peer() const noexcept { return peer_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  const PutTransport* owner_;
  int peer_;
  std::size_t size_bytes_;
};

/// One write. The source must not change until `sent` with this token has come out of poll().
struct Put {
  const LocalRegion* source = nullptr;  ///< may be null if size_bytes is 0
  std::size_t source_offset_bytes = 0;
  const RemoteRegion* target = nullptr;
  std::size_t target_offset_bytes = 0;
  std::size_t size_bytes = 0;   ///< 0: only the immediate
  std::uint32_t immediate = 0;  ///< of the puts in flight to one peer no two may have the same
  std::uint64_t token = 0;      ///< comes back with `sent`; the transport does not look at it
};

struct PutEvent {
  enum class Kind : unsigned char {
    sent,     ///< a put of this rank needs its source no longer
    arrived,  ///< a put of the peer is here, bytes and all
  };
  Kind kind = Kind::sent;
  int peer = -1;
  std::uint32_t immediate = 0;  ///< arrived
  std::uint64_t token = 0;      ///< sent
};

/// One rank's access to one kind of transport. Used by one thread at a time. Construction, exchange of addresses,
/// connect() and a barrier come first (put_group.hpp); then regions and puts. Destruction does not wait for peers: what
/// is in flight may be lost, and peers see this rank as gone.
class PutTransport {
 public:
  virtual ~PutTransport() = default;

  [[nodiscard]] virtual PutKind kind() const noexcept = 0;
  /// For people: "mlx5_0 port 1, RoCE v2, GID 3".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// What the other ranks need to connect to this one.
  [[nodiscard]] virtual Bytes address() const = 0;
  /// `addresses`: by rank. Throws Error (peer, mismatch, unsupported, timeout) naming the rank.
  virtual void connect(std::span<const Bytes> addresses) = 0;

  /// Throws Error (invalid_argument for no bytes, capacity, unsupported) if the memory cannot be registered.
  [[nodiscard]] virtual std::unique_ptr<LocalRegion> add_region(const PutMemory& memory) = 0;
  /// `key`: of a region of `peer`. Throws Error (peer) if it is not one.
  [[nodiscard]] virtual std::unique_ptr<RemoteRegion> import_region(int peer, std::span<const std::byte> key) = 0;

  /// Starts the first puts of `puts`, posting those to one peer together, and returns how many: fewer than all if a
  /// queue is full, then poll() makes room. Throws Error (invalid_argument) for a put outside its regions, before any
  /// is started, and PutFailure.
  [[nodiscard]] virtual std::size_t put(std::span<const Put> puts) = 0;
  /// Makes progress and reports what has happened: up to events.size() events, often none. Never waits. Throws
  /// PutFailure.
  [[nodiscard]] virtual std::size_t poll(std::span<PutEvent> events) = 0;
};

}  // namespace moelink

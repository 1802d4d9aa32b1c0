// One rank of a test of puts: a connected transport, memory to put from and into, and what has happened.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.hpp"
#include "base/text.hpp"
#include "transports/put.hpp"
#include "transports/put_group.hpp"
#include "transports/rendezvous.hpp"

namespace moelink::test {

/// The byte at `index` of the payload number `seed`: no two payloads look alike at any offset.
inline std::byte payload_byte(std::uint64_t seed, std::size_t index) {
  std::uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15 + index * 0xbf58476d1ce4e5b9;
  x ^= x >> 31;
  x *= 0x94d049bb133111eb;
  return static_cast<std::byte>(x >> 56);
}

class PutRank {
 public:
  static constexpr std::chrono::seconds kPatience{20};

  PutRank(Rendezvous& meet, std::unique_ptr<PutTransport> transport, const PutOptions& options, std::size_t bytes)
      : meet_(meet), options_(options), out_(bytes), in_(bytes), transport_(std::move(transport)) {
    connect_puts(meet, *transport_);
    source_ = transport_->add_region({out_.data(), bytes});
    target_ = transport_->add_region({in_.data(), bytes});
    remotes_ = share_region(meet, *transport_, target_.get(), options.remotes);
  }

  [[nodiscard]] int rank() const { return options_.rank; }
  [[nodiscard]] int size() const { return options_.num_ranks; }
  [[nodiscard]] const std::vector<int>& remotes() const { return options_.remotes; }
  [[nodiscard]] PutTransport& transport() { return *transport_; }
  [[nodiscard]] Rendezvous& meet() { return meet_; }
  [[nodiscard]] const RemoteRegion* remote(int peer) const { return remotes_[static_cast<std::size_t>(peer)].get(); }
  [[nodiscard]] const LocalRegion* source() const { return source_.get(); }
  std::vector<std::byte>& in() { return in_; }

  void fill(std::size_t offset, std::size_t bytes, std::uint64_t seed) {
    for (std::size_t i = 0; i < bytes; ++i) out_[offset + i] = payload_byte(seed, i);
  }
  [[nodiscard]] std::size_t num_wrong(std::size_t offset, std::size_t bytes, std::uint64_t seed) const {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes; ++i) wrong += in_[offset + i] != payload_byte(seed, i) ? 1 : 0;
    return wrong;
  }

  /// A put to the same offset at the peer.
  [[nodiscard]] Put make(int peer, std::size_t offset, std::size_t bytes, std::uint32_t immediate) const {
    return {.source = source_.get(),
            .source_offset_bytes = offset,
            .target = remote(peer),
            .target_offset_bytes = offset,
            .size_bytes = bytes,
            .immediate = immediate,
            .token = std::uint64_t{immediate} << 8 | static_cast<unsigned>(peer)};
  }
  /// Starts all of them, polling where there is no room.
  void put(std::span<const Put> puts) {
    const Deadline deadline = Deadline::after(kPatience);
    while (!puts.empty()) {
      puts = puts.subspan(transport_->put(puts));
      if (!puts.empty()) poll(deadline, "room for a put");
    }
  }
  void put(const Put& one) { put(std::span(&one, 1)); }

  /// Until so many puts of this rank are sent, and so many immediates have arrived, in all.
  void wait(std::size_t num_sent, std::size_t num_arrived) {
    const Deadline deadline = Deadline::after(kPatience);
    while (sent.size() < num_sent || arrived.size() < num_arrived) {
      poll(deadline, text(num_sent, " sent (", sent.size(), " are), ", num_arrived, " arrived (", arrived.size(), ")"));
    }
  }
  /// Progress for a while, or until it throws.
  void poll_for(std::chrono::milliseconds time) {
    const Deadline deadline = Deadline::after(time);
    while (!deadline.expired()) poll_once();
  }
  /// Takes one event, and yields to the other ranks where there is none.
  bool poll_once() {
    PutEvent event;
    if (transport_->poll(std::span(&event, 1)) == 0) {
      std::this_thread::yield();
      return false;
    }
    (event.kind == PutEvent::Kind::sent ? sent : arrived).push_back(event);
    return true;
  }
  void leave() {  // as a process that dies: without a word
    for (auto& remote : remotes_) remote.reset();
    source_.reset();
    target_.reset();
    transport_.reset();
  }
  void drop_target() { target_.reset(); }

  std::vector<PutEvent> sent;
  std::vector<PutEvent> arrived;

 private:
  void poll(const Deadline& deadline, const std::string& what) {
    poll_once();
    if (deadline.expired()) {
      throw Error(ErrorCode::timeout, text("rank ", rank(), " waited in vain for ", what));
    }
  }

  Rendezvous& meet_;
  PutOptions options_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  std::unique_ptr<PutTransport> transport_;
  std::unique_ptr<LocalRegion> source_;
  std::unique_ptr<LocalRegion> target_;
  std::vector<std::unique_ptr<RemoteRegion>> remotes_;
};

}  // namespace moelink::test

// A rank that speaks the protocol by hand, so that it can also break it.
#pragma once

#include <optional>
#include <stdexcept>
#include <utility>

#include "base/socket.hpp"
#include "comm/connection.hpp"
#include "comm/wire.hpp"

namespace moelink::testing {

class RawRank {
 public:
  explicit RawRank(const SocketAddress& address) : connection_(connect_to(address, nullptr, patience())) {}

  Greeting read_greeting() { return *decode_greeting(read(Greeting::kBytes)); }

  void send(std::span<const std::byte> bytes) {
    connection_.queue(bytes);
    while (connection_.wants_write() && connection_.flush()) {
      (void)connection_.wait(patience());
    }
  }

  /// The next frame; nothing when the hub has closed.
  std::optional<Frame> read_frame() {
    const Deadline until = patience();
    for (bool alive = true;;) {
      if (auto frame = connection_.take_frame(std::size_t{1} << 24)) {
        return frame;
      }
      if (!alive || !connection_.wait(until)) {
        return std::nullopt;
      }
      alive = connection_.fill();
    }
  }

  /// Joins without a key, as a well-behaved rank would, and waits for the start.
  void join(Hello hello) {
    (void)read_greeting();
    send(encode(hello));
    if (read_frame()->type != FrameType::accept || read_frame()->type != FrameType::start) {
      throw std::runtime_error("the hub did not let the raw rank in");
    }
  }

  /// True once the hub has closed this connection.
  bool is_closed() {
    const Deadline until = patience();
    while (connection_.fill()) {
      if (!connection_.wait(until)) {
        return false;
      }
    }
    return true;
  }

 private:
  static Deadline patience() { return Deadline::after(std::chrono::milliseconds(10'000)); }

  Bytes read(std::size_t num_bytes) {
    const Deadline until = patience();
    while (connection_.unread_bytes() < num_bytes) {
      if (!connection_.wait(until) || !connection_.fill()) {
        throw std::runtime_error("the hub said less than expected");
      }
    }
    return *connection_.take(num_bytes);
  }

  Connection connection_;
};

}  // namespace moelink::testing

// A non-blocking socket with its unsent and unread bytes. One thread at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "comm/wire.hpp"

namespace moelink {

class Connection {
 public:
  explicit Connection(UniqueFd fd) noexcept : fd_(std::move(fd)) {}

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] bool wants_write() const noexcept { return sent_ < out_.size(); }

  /// Appends to the unsent bytes; flush() sends what the socket takes.
  void queue(std::span<const std::byte> bytes);
  void queue(const Frame& frame) { queue(encode(frame)); }

  /// Sends without waiting. False: the connection is broken.
  [[nodiscard]] bool flush();
  /// Reads without waiting, at most `max_bytes`. False: the other side has closed, or the connection is broken; what
  /// arrived before can still be taken.
  [[nodiscard]] bool fill(std::size_t max_bytes = std::size_t{256} << 10);

  [[nodiscard]] std::size_t unread_bytes() const noexcept { return in_.size() - taken_; }
  /// The first unread bytes, which stay unread.
  [[nodiscard]] std::span<const std::byte> peek(std::size_t num_bytes) const;
  /// The next `num_bytes`, once they are all there.
  [[nodiscard]] std::optional<Bytes> take(std::size_t num_bytes);
  /// The next frame, once it is all there. Throws ErrorCode::peer if its payload is longer than `max_payload_bytes`.
  [[nodiscard]] std::optional<Frame> take_frame(std::size_t max_payload_bytes);

  /// Waits until there is something to read (or to write, if anything is unsent), or the deadline. False: the latter.
  [[nodiscard]] bool wait(Deadline deadline) const;
  /// No more will be sent. The other side reads what was, then sees the end.
  void finish_sending() noexcept;

 private:
  UniqueFd fd_;
  Bytes out_;
  std::size_t sent_ = 0;
  Bytes in_;
  std::size_t taken_ = 0;
};

}  // namespace moelink

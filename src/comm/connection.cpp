#include "comm/connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/text.hpp"

namespace moelink {

void Connection::queue(std::span<const std::byte> bytes) {
  if (!wants_write()) {
    out_.clear();
    sent_ = 0;
  }
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

bool Connection::flush() {
  while (wants_write()) {
    // MSG_NOSIGNAL: a peer that is gone is an error to report, not a SIGPIPE.
    const ssize_t count = ::send(fd(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    sent_ += static_cast<std::size_t>(count);
  }
  return true;
}

bool Connection::fill(std::size_t max_bytes) {
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  constexpr std::size_t kChunkBytes = 64 << 10;
  while (max_bytes > 0) {
    const std::size_t before = in_.size();
    const std::size_t chunk = std::min(max_bytes, kChunkBytes);
    in_.resize(before + chunk);
    const ssize_t count = ::recv(fd(), in_.data() + before, chunk, 0);
    const int error = errno;
    in_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) {
      return false;
    }
    if (count < 0) {
      if (error == EINTR) {
        continue;
      }
      return error == EAGAIN || error == EWOULDBLOCK;
    }
    max_bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

std::span<const std::byte> Connection::peek(std::size_t num_bytes) const {
  return std::span(in_).subspan(taken_, std::min(num_bytes, unread_bytes()));
}

std::optional<Bytes> Connection::take(std::size_t num_bytes) {
  if (unread_bytes() < num_bytes) {
    return std::nullopt;
  }
  const auto bytes = peek(num_bytes);
  taken_ += num_bytes;
  return Bytes(bytes.begin(), bytes.end());
}

std::optional<Frame> Connection::take_frame(std::size_t max_payload_bytes) {
  if (unread_bytes() < Frame::kHeaderBytes) {
    return std::nullopt;
  }
  const FrameHeader header = decode_frame_header(peek(Frame::kHeaderBytes));
  if (header.payload_bytes > max_payload_bytes) {
    throw Error(ErrorCode::peer, text("a message of ", header.payload_bytes, " bytes arrived, at most ",
                                      max_payload_bytes, " were expected"));
  }
  if (unread_bytes() < Frame::kHeaderBytes + header.payload_bytes) {
    return std::nullopt;
  }
  taken_ += Frame::kHeaderBytes;
  return Frame{header.type, header.round, *take(header.payload_bytes)};
}

bool Connection::wait(Deadline deadline) const {
  pollfd waiting{.fd = fd(), .events = static_cast<short>(POLLIN | (wants_write() ? POLLOUT : 0)), .revents = 0};
  while (::poll(&waiting, 1, deadline.poll_timeout_ms()) <= 0) {
    if (deadline.expired()) {
      return false;
    }
  }
  return true;
}

void Connection::finish_sending() noexcept { ::shutdown(fd(), SHUT_WR); }

}  // namespace moelink

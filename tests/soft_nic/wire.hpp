// The cable between soft NICs: frames over a Unix socket with an abstract name, in one process or between several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/unique_fd.hpp"

namespace moelink::soft_nic {

enum class FrameKind : std::uint32_t { write, done, no_such_pair, no_access };

struct Frame {
  FrameKind kind = FrameKind::write;
  std::uint32_t to_pair = 0;
  std::uint32_t from_pair = 0;
  std::uint32_t rkey = 0;
  std::uint64_t number = 0;  ///< of the write; its answer carries the same
  std::uint64_t target = 0;
  std::uint32_t immediate = 0;
  std::uint32_t size_bytes = 0;  ///< of the payload that follows
};

struct ReceivedFrame {
  Frame frame;
  std::vector<std::byte> payload;
};

/// One connected socket, never blocking.
class Wire {
 public:
  explicit Wire(UniqueFd socket) : socket_(std::move(socket)) {}
  /// To the NIC with that number; not connected if there is none.
  [[nodiscard]] static Wire to(std::uint32_t nic);

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  [[nodiscard]] bool is_broken() const noexcept { return !socket_; }
  [[nodiscard]] bool wants_to_send() const noexcept { return sent_ < outgoing_.size(); }
  [[nodiscard]] std::size_t backlog_bytes() const noexcept { return outgoing_.size() - sent_; }

  void queue(const Frame& frame, const std::byte* payload);
  /// Sends and receives what can be. Breaks if the other end has gone.
  void progress();
  [[nodiscard]] std::optional<ReceivedFrame> take();

 private:
  void send_some();
  void receive_some();

  UniqueFd socket_;
  std::vector<std::byte> outgoing_;
  std::size_t sent_ = 0;
  std::vector<std::byte> incoming_;
  std::size_t taken_ = 0;
};

/// Listens as the NIC with this number; if it is 0, or somebody else has it, with a new one, which goes into `nic`.
[[nodiscard]] UniqueFd listen_as_nic(std::uint32_t& nic);

}  // namespace moelink::soft_nic

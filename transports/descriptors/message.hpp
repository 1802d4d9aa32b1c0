// One descriptor with its sender's name, on a connected Unix socket.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/unique_fd.hpp"

namespace moelink {

struct DescriptorMessage {
  std::uint32_t magic = kMagic;
  std::int32_t sender = 0;                             ///< rank
  std::uint64_t nonce = 0;                             ///< the receiver's
  static constexpr std::uint32_t kMagic = 0x6d6c6664;  // "mlfd"
};

/// Sends without blocking. Throws ErrorCode::system.
void send_descriptor(int socket, const DescriptorMessage& message, int descriptor);

struct ReceivedDescriptor {
  DescriptorMessage message;
  UniqueFd descriptor;
};
enum class ReceiveState { nothing_yet, stranger, received };
/// Takes a message if one is there. A stranger is whoever sends anything but one whole message with one descriptor, or
/// hangs up. Throws ErrorCode::system if this process can hold no more descriptors.
[[nodiscard]] ReceiveState receive_descriptor(int socket, ReceivedDescriptor& out);

/// Whether the process at the other end runs as this process's effective user.
[[nodiscard]] bool is_same_user(int socket);

}  // namespace moelink

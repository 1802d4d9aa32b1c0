#include "transports/descriptors/message.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "base/system_error.hpp"

namespace moelink {
namespace {

/// Room for the descriptors of a hostile sender too, so that they are received and closed rather than truncated.
constexpr std::size_t kMaxDescriptors = 8;

union Control {
  cmsghdr align;
  unsigned char bytes[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
};

/// Takes over every descriptor in the message; returns the first and closes the others.
UniqueFd take_descriptors(msghdr& header, std::size_t& count) {
  UniqueFd first;
  count = 0;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t here = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < here; ++i, ++count) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
      UniqueFd owned(fd);
      if (count == 0) {
        first = std::move(owned);
      }
    }
  }
  return first;
}

}  // namespace

void send_descriptor(int socket, const DescriptorMessage& message, int descriptor) {
  DescriptorMessage copy = message;
  iovec data{&copy, sizeof(copy)};
  Control control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes;
  header.msg_controllen = CMSG_SPACE(sizeof(int));
  cmsghdr* item = CMSG_FIRSTHDR(&header);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(item), &descriptor, sizeof(int));
  if (::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(sizeof(copy))) {
    throw system_error("sending a descriptor to a peer failed (too many in flight? see `ulimit -n`)");
  }
}

ReceiveState receive_descriptor(int socket, ReceivedDescriptor& out) {
  iovec data{&out.message, sizeof(out.message)};
  Control control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes;
  header.msg_controllen = sizeof(control.bytes);
  const ssize_t size = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
    return ReceiveState::nothing_yet;
  }
  if (size < 0) {
    return ReceiveState::stranger;
  }
  std::size_t count = 0;
  out.descriptor = take_descriptors(header, count);
  const bool is_ours = size == static_cast<ssize_t>(sizeof(out.message)) && (header.msg_flags & MSG_TRUNC) == 0 &&
                       out.message.magic == DescriptorMessage::kMagic;
  if (is_ours && count == 0 && (header.msg_flags & MSG_CTRUNC) != 0) {
    throw Error(ErrorCode::system, "a peer's descriptor did not fit into this process; raise `ulimit -n`");
  }
  return is_ours && count == 1 ? ReceiveState::received : ReceiveState::stranger;
}

bool is_same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

}  // namespace moelink

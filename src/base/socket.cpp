#include "base/socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <array>
#include <cstring>

#include "base/system_error.hpp"
#include "base/text.hpp"

namespace moelink {
namespace {

constexpr int kBacklog = 1024;

UniqueFd open_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    throw system_error("socket()");
  }
  return fd;
}

void set_option(int fd, int level, int name, int value, const char* what) {
  if (::setsockopt(fd, level, name, &value, sizeof value) != 0) {
    throw system_error(what);
  }
}

/// Small messages at once, and a host that lost power is noticed within about fifteen seconds while nothing is under
/// way. No TCP_USER_TIMEOUT: it would also end a connection whose other side is merely stopped with a full window.
void tune_connection(int fd, int family) {
  if (family == AF_UNIX) {
    return;
  }
  constexpr int kIdleSeconds = 5;
  constexpr int kIntervalSeconds = 2;
  constexpr int kProbes = 5;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds, "TCP_KEEPIDLE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kIntervalSeconds, "TCP_KEEPINTVL");
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes, "TCP_KEEPCNT");
}

/// 0, or the error.
int bind_and_listen(int fd, const SocketAddress& address) {
  const bool done = ::bind(fd, address.data(), address.length()) == 0 && ::listen(fd, kBacklog) == 0;
  return done ? 0 : errno;
}

/// A socket ready to be bound to `address`, alone or, for IPv6, together with IPv4.
UniqueFd open_listener(const SocketAddress& address, bool also_ipv4) {
  UniqueFd fd = open_socket(address.family());
  if (address.family() != AF_UNIX) {
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
  }
  if (address.family() == AF_INET6) {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, also_ipv4 ? 0 : 1, "IPV6_V6ONLY");
  }
  return fd;
}

template <class Address>
SocketAddress any_address(const Address& address) {
  return {reinterpret_cast<const sockaddr*>(&address), sizeof address};
}

}  // namespace

UniqueFd listen_at(const SocketAddress& address) {
  UniqueFd fd = open_listener(address, false);
  if (const int error = bind_and_listen(fd.get(), address); error != 0) {
    throw system_error(text("listening at ", address.to_string()), error);
  }
  return fd;
}

std::vector<UniqueFd> listen_on_interface(const std::string& interface, int port) {
  std::vector<UniqueFd> listeners;
  for (const SocketAddress& own : interface_addresses(interface)) {
    const SocketAddress address = own.with_port(port);
    UniqueFd fd = open_listener(address, false);
    const int error = bind_and_listen(fd.get(), address);
    if (error == 0) {
      listeners.push_back(std::move(fd));
    } else if (error != EADDRNOTAVAIL) {
      throw system_error(text("listening at ", address.to_string()), error);
    }
  }
  if (listeners.empty()) {
    throw system_error(text("listening on the interface ", interface), EADDRNOTAVAIL);
  }
  return listeners;
}

UniqueFd listen_everywhere(int port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<std::uint16_t>(port));
  const SocketAddress everywhere = any_address(any6);
  // A kernel without IPv6 refuses the socket, one with IPv6 disabled the address.
  const UniqueFd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (probe) {
    UniqueFd fd = open_listener(everywhere, true);
    const int error = bind_and_listen(fd.get(), everywhere);
    if (error == 0) {
      return fd;
    }
    if (error != EADDRNOTAVAIL) {
      throw system_error(text("listening on port ", port), error);
    }
  }
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(static_cast<std::uint16_t>(port));
  return listen_at(any_address(any4));
}

SocketAddress local_address(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    throw system_error("getsockname()");
  }
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

UniqueFd connect_to(const SocketAddress& address, const SocketAddress* source, Deadline deadline) {
  UniqueFd fd = open_socket(address.family());
  tune_connection(fd.get(), address.family());
  if (source != nullptr && ::bind(fd.get(), source->data(), source->length()) != 0) {
    throw system_error(text("binding to ", source->to_string()));
  }
  if (::connect(fd.get(), address.data(), address.length()) == 0) {
    return fd;
  }
  // A Unix socket with a full backlog says EAGAIN: try again later, as after a refusal.
  if (errno != EINPROGRESS) {
    throw system_error(text("connecting to ", address.to_string()));
  }
  pollfd waiting{.fd = fd.get(), .events = POLLOUT, .revents = 0};
  while (::poll(&waiting, 1, deadline.poll_timeout_ms()) <= 0) {
    if (deadline.expired()) {
      throw Error(ErrorCode::timeout, text("connecting to ", address.to_string(), ": no answer"));
    }
  }
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
    throw system_error("SO_ERROR");
  }
  if (error != 0) {
    throw system_error(text("connecting to ", address.to_string()), error);
  }
  return fd;
}

std::pair<UniqueFd, SocketAddress> accept_from(int listener) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  UniqueFd fd(::accept4(listener, reinterpret_cast<sockaddr*>(&storage), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      throw system_error("accept()");
    }
    return {};  // nobody there, or gone again
  }
  SocketAddress from(reinterpret_cast<const sockaddr*>(&storage), length);
  tune_connection(fd.get(), from.family());
  return {std::move(fd), from};
}

std::pair<UniqueFd, UniqueFd> socket_pair() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    throw system_error("socketpair()");
  }
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

bool is_own_user(int fd) {
  if (local_address(fd).family() != AF_UNIX) {
    return true;
  }
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

}  // namespace moelink

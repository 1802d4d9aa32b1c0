// Stream sockets over IPv4, IPv6 and Unix, all non-blocking and closed on exec.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

namespace moelink {

/// Where a socket listens or comes from.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length);

  /// A name in Linux's abstract namespace: no file, gone with its last socket. At most 100 characters.
  [[nodiscard]] static SocketAddress abstract_unix(std::string_view name);

  [[nodiscard]] const sockaddr* data() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t length() const noexcept { return length_; }
  [[nodiscard]] int family() const noexcept { return storage_.ss_family; }
  /// 0 for Unix sockets.
  [[nodiscard]] int port() const noexcept;
  [[nodiscard]] SocketAddress with_port(int port) const;
  [[nodiscard]] bool is_loopback() const noexcept;
  /// An IPv6 address that means something on one link only.
  [[nodiscard]] bool is_link_local() const noexcept;
  /// "10.0.0.1:29500", "[fe80::1]:29500", "@name".
  [[nodiscard]] std::string to_string() const;
  /// "10.0.0.1", "fe80::1%eth0".
  [[nodiscard]] std::string host() const;

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

/// The addresses of a host name or number. Throws ErrorCode::invalid_argument with the resolver's words.
[[nodiscard]] std::vector<SocketAddress> resolve(const std::string& host, int port);
/// Whether `host` is a number, such as 10.0.0.1 or ::1, not a name.
[[nodiscard]] bool is_numeric_host(const std::string& host);
/// The addresses of this machine's interfaces that are up, or of one of them; port 0. Throws
/// ErrorCode::invalid_argument, listing the interfaces that exist, if `interface` has none.
[[nodiscard]] std::vector<SocketAddress> interface_addresses(const std::string& interface = {});

/// Listens at `address`. Throws ErrorCode::system.
[[nodiscard]] UniqueFd listen_at(const SocketAddress& address);
/// Listens at every address of an interface, but for those that cannot be used yet (IPv6 addresses are checked for
/// duplicates first). Throws ErrorCode::system if none can.
[[nodiscard]] std::vector<UniqueFd> listen_on_interface(const std::string& interface, int port);
/// Listens at every address of this machine, IPv6 and IPv4; port 0 takes a free one.
[[nodiscard]] UniqueFd listen_everywhere(int port);
[[nodiscard]] SocketAddress local_address(int fd);

/// A connection to `address`, from `source` unless empty. Throws ErrorCode::system or timeout.
[[nodiscard]] UniqueFd connect_to(const SocketAddress& address, const SocketAddress* source, Deadline deadline);
/// A waiting connection and where it comes from; nothing if there is none. Throws ErrorCode::system when descriptors or
/// memory run out.
[[nodiscard]] std::pair<UniqueFd, SocketAddress> accept_from(int listener);
/// Two ends of one connection.
[[nodiscard]] std::pair<UniqueFd, UniqueFd> socket_pair();

/// Whether the other end of a Unix socket belongs to this process's user; true for other sockets.
[[nodiscard]] bool is_own_user(int fd);

}  // namespace moelink

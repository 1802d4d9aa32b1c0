#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <set>

#include "base/socket.hpp"
#include "base/system_error.hpp"
#include "base/text.hpp"

namespace moelink {
namespace {

constexpr std::size_t kUnixPathOffset = offsetof(sockaddr_un, sun_path);

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList look_up(const std::string& host, int port, int flags, int& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  error = ::getaddrinfo(host.c_str(), text(port).c_str(), &hints, &found);
  return {error == 0 ? found : nullptr, &::freeaddrinfo};
}

std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length)
    : length_(std::min<socklen_t>(length, sizeof storage_)) {
  std::memcpy(&storage_, address, length_);
}

SocketAddress SocketAddress::abstract_unix(std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name = name.substr(0, sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // the zero before it makes it abstract
  return {reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(kUnixPathOffset + 1 + name.size())};
}

int SocketAddress::port() const noexcept {
  if (family() == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  }
  return family() == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port) : 0;
}

SocketAddress SocketAddress::with_port(int port) const {
  SocketAddress changed = *this;
  const auto network_order = htons(static_cast<std::uint16_t>(port));
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&changed.storage_)->sin_port = network_order;
  } else if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&changed.storage_)->sin6_port = network_order;
  }
  return changed;
}

bool SocketAddress::is_loopback() const noexcept {
  if (family() == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

bool SocketAddress::is_link_local() const noexcept {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

std::string SocketAddress::host() const {
  std::array<char, NI_MAXHOST> name{};
  return ::getnameinfo(data(), length_, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) == 0 ? name.data() : "?";
}

std::string SocketAddress::to_string() const {
  if (family() == AF_UNIX) {
    const auto* path = reinterpret_cast<const sockaddr_un*>(&storage_)->sun_path;
    return length_ > kUnixPathOffset ? text("@", std::string_view(path + 1, length_ - kUnixPathOffset - 1)) : "a Unix socket";
  }
  return family() == AF_INET6 ? text("[", host(), "]:", port()) : text(host(), ":", port());
}

std::vector<SocketAddress> resolve(const std::string& host, int port) {
  int error = 0;
  const AddressList list = look_up(without_brackets(host), port, 0, error);
  if (error != 0) {
    throw Error(ErrorCode::invalid_argument, text("the host '", host, "' cannot be resolved: ", ::gai_strerror(error)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  return addresses;
}

bool is_numeric_host(const std::string& host) {
  int error = 0;
  return look_up(without_brackets(host), 0, AI_NUMERICHOST, error) != nullptr;
}

std::vector<SocketAddress> interface_addresses(const std::string& interface) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) {
    throw system_error("getifaddrs()");
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  std::vector<SocketAddress> addresses;
  std::set<std::string> names;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) {
      continue;
    }
    names.insert(entry->ifa_name);
    if (interface.empty() || interface == entry->ifa_name) {
      addresses.emplace_back(entry->ifa_addr,
                             static_cast<socklen_t>(family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
    }
  }
  if (addresses.empty() && !interface.empty()) {
    std::string known;
    for (const std::string& name : names) {
      known.append(" ").append(name);
    }
    throw Error(ErrorCode::invalid_argument,
                text("the network interface '", interface,
                     "' is not there, is down or has no address; those that are up:", known.empty() ? " none" : known));
  }
  return addresses;
}

}  // namespace moelink

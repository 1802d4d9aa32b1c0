#include "engine/serve/client_socket.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace moelink::engine {
namespace {

struct End {
  std::string address;
  std::string port;
  friend bool operator==(const End&, const End&) = default;
};

/// One end of a connection: `get` is getpeername or getsockname.
std::optional<End> end_of(int descriptor, int (*get)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = sizeof(storage);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (get(descriptor, address, &size) != 0 || getnameinfo(address, size, host.data(), host.size(), port.data(),
                                                          port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  return End{.address = host.data(), .port = port.data()};
}

std::vector<int> open_descriptors() {
  std::vector<int> descriptors;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    descriptors.push_back(descriptor);
  }
  return descriptors;
}

}  // namespace

ClientSocket::ClientSocket(const httplib::Request& request) {
  const End client{.address = request.remote_addr, .port = std::to_string(request.remote_port)};
  const End here{.address = request.local_addr, .port = std::to_string(request.local_port)};
  for (const int descriptor : open_descriptors()) {
    if (end_of(descriptor, &getpeername) == client && end_of(descriptor, &getsockname) == here) {
      descriptor_ = descriptor;
      return;
    }
  }
}

bool ClientSocket::hung_up() const {
  if (!descriptor_) {
    return false;
  }
  char byte = 0;
  const ssize_t size = recv(*descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return size == 0 || (size < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void ClientSocket::end_of_answers() const {
  if (!descriptor_) {
    return;
  }
  ::shutdown(*descriptor_, SHUT_WR);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::array<char, 1 << 14> forgotten{};
  pollfd wait{.fd = *descriptor_, .events = POLLIN, .revents = 0};
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ::poll(&wait, 1, static_cast<int>(left.count())) <= 0 ||
        ::recv(*descriptor_, forgotten.data(), forgotten.size(), MSG_DONTWAIT) <= 0) {
      break;
    }
  }
  ::shutdown(*descriptor_, SHUT_RD);
}

void stop_reading_from_clients(int port) {
  for (const int descriptor : open_descriptors()) {
    const std::optional<End> here = end_of(descriptor, &getsockname);
    if (here && here->port == std::to_string(port) && end_of(descriptor, &getpeername)) {
      ::shutdown(descriptor, SHUT_RD);
    }
  }
}

}  // namespace moelink::engine

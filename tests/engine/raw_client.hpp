// A client of a server under test that does what no library would.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>

namespace moelink::engine::testing {

class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const timeval longest{.tv_sec = 30, .tv_usec = 0};
    EXPECT_EQ(::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest)), 0);
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(const std::string& bytes) const { EXPECT_TRUE(try_send(bytes)); }
  /// False once the server has closed the connection.
  [[nodiscard]] bool try_send(const std::string& bytes) const {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  void post(const std::string& body) const {
    send("POST /v1/completions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  /// What has come once `words` have, or nothing more comes.
  [[nodiscard]] std::string read_until(const std::string& words) const {
    std::string seen;
    std::array<char, 4096> part{};
    while (seen.find(words) == std::string::npos) {
      const ssize_t size = ::recv(socket_, part.data(), part.size(), 0);
      if (size <= 0) break;
      seen.append(part.data(), static_cast<std::size_t>(size));
    }
    return seen;
  }

 private:
  int socket_;
};

}  // namespace moelink::engine::testing

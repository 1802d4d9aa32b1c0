#include "soft_nic/wire.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>

#include "base/system_error.hpp"

namespace moelink::soft_nic {
namespace {

struct Address {
  sockaddr_un value{};
  socklen_t length = 0;
};

Address address_of(std::uint32_t nic) {
  Address address;
  address.value.sun_family = AF_UNIX;
  const std::string name = "moelink-soft-nic-" + std::to_string(::geteuid()) + "-" + std::to_string(nic);
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());  // behind a zero: no file
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

UniqueFd make_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw system_error("soft NIC: making a socket failed");
  return fd;
}

bool is_passing(int error) { return error == EAGAIN || error == EINTR; }

}  // namespace

UniqueFd listen_as_nic(std::uint32_t& nic) {
  std::random_device random;
  UniqueFd fd = make_socket();
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (nic == 0 || attempt != 0) nic = random() % 0xbfff + 1;  // a unicast LID
    const Address here = address_of(nic);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&here.value), here.length) == 0) {
      if (::listen(fd.get(), SOMAXCONN) != 0) break;
      return fd;
    }
  }
  throw system_error("soft NIC: finding a number failed");
}

Wire Wire::to(std::uint32_t nic) {
  UniqueFd fd = make_socket();
  const Address there = address_of(nic);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&there.value), there.length) != 0) fd.reset();
  return Wire(std::move(fd));
}

void Wire::queue(const Frame& frame, const std::byte* payload) {
  const auto* header = reinterpret_cast<const std::byte*>(&frame);
  outgoing_.insert(outgoing_.end(), header, header + sizeof(frame));
  if (frame.size_bytes != 0 && payload != nullptr) {
    outgoing_.insert(outgoing_.end(), payload, payload + frame.size_bytes);
  }
}

void Wire::progress() {
  if (!is_broken()) send_some();
  if (!is_broken()) receive_some();
}

void Wire::send_some() {
  while (wants_to_send()) {
    const ssize_t count = ::send(fd(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0) {
      if (!is_passing(errno)) socket_.reset();
      return;
    }
    sent_ += static_cast<std::size_t>(count);
  }
  outgoing_.clear();
  sent_ = 0;
}

void Wire::receive_some() {
  constexpr std::size_t kChunk = 256 * 1024;
  const std::size_t before = incoming_.size();
  incoming_.resize(before + kChunk);
  const ssize_t count = ::recv(fd(), incoming_.data() + before, kChunk, 0);
  incoming_.resize(before + static_cast<std::size_t>(count > 0 ? count : 0));
  if (count == 0 || (count < 0 && !is_passing(errno))) socket_.reset();
}

std::optional<ReceivedFrame> Wire::take() {
  ReceivedFrame received;
  const std::size_t there = incoming_.size() - taken_;
  if (there < sizeof(Frame)) return std::nullopt;
  std::memcpy(&received.frame, incoming_.data() + taken_, sizeof(Frame));
  const std::size_t payload = received.frame.kind == FrameKind::write ? received.frame.size_bytes : 0;
  if (there < sizeof(Frame) + payload) return std::nullopt;
  const auto* begin = incoming_.data() + taken_ + sizeof(Frame);
  received.payload.assign(begin, begin + payload);
  taken_ += sizeof(Frame) + payload;
  if (taken_ == incoming_.size() || taken_ > (std::size_t{1} << 22)) {
    incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(taken_));
    taken_ = 0;
  }
  return received;
}

}  // namespace moelink::soft_nic

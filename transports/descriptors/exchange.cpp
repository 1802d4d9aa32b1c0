#include "transports/descriptors/exchange.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "base/system_error.hpp"
#include "transports/descriptors/message.hpp"

namespace moelink {
namespace {

/// SOCK_SEQPACKET: one message is one packet, so that half a message cannot be seen.
constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
/// How long to wait for arrivals while a peer's queue is full.
constexpr int kRetryMs = 2;

UniqueFd make_socket() {
  UniqueFd fd(::socket(AF_UNIX, kSocketType, 0));
  if (!fd) {
    throw system_error("making a Unix socket failed (check `ulimit -n`)");
  }
  return fd;
}

sockaddr_un socket_address(const DescriptorAddress& address) {
  sockaddr_un out{};
  out.sun_family = AF_UNIX;
  static_assert(sizeof(out.sun_path) == sizeof(address.path));
  std::memcpy(out.sun_path, address.path.data(), sizeof(out.sun_path));
  out.sun_path[sizeof(out.sun_path) - 1] = '\0';
  return out;
}

/// False if the peer's queue is full.
bool try_send(int my_rank, int descriptor, const DescriptorExchange::Peer& peer) {
  const UniqueFd socket = make_socket();
  const sockaddr_un to = socket_address(peer.address);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
    if (errno == EAGAIN || errno == EINTR) {
      return false;
    }
    throw system_error("rank " + std::to_string(peer.rank) + " on this node cannot be reached at " + to.sun_path +
                       "; ranks of one node must see one file system there. Name a shared directory with "
                       "MOELINK_SOCKET_DIR, or put the ranks on different nodes");
  }
  if (!is_same_user(socket.get())) {
    throw Error(ErrorCode::peer, std::string("the socket at ") + to.sun_path + " belongs to another user");
  }
  send_descriptor(socket.get(), {.sender = my_rank, .nonce = peer.address.nonce}, descriptor);
  return true;
}

/// Connections that have not yet said anything. Whoever stays silent is pushed out by later ones.
class Callers {
 public:
  explicit Callers(std::size_t most) : most_(most) {}

  void wait(int listener, int timeout_ms) {
    std::vector<pollfd> watched{{listener, POLLIN, 0}};
    for (const UniqueFd& caller : callers_) {
      watched.push_back({caller.get(), POLLIN, 0});
    }
    if (::poll(watched.data(), watched.size(), timeout_ms) < 0 && errno != EINTR) {
      throw system_error("poll failed");
    }
  }

  void accept_all(int listener) {
    while (true) {
      UniqueFd caller(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!caller) {
        if (errno == EMFILE || errno == ENFILE) {
          throw system_error("accepting a peer's descriptor failed; raise `ulimit -n`");
        }
        return;
      }
      if (is_same_user(caller.get())) {
        callers_.push_back(std::move(caller));
      }
      if (callers_.size() > most_) {
        callers_.pop_front();
      }
    }
  }

  template <class Take>
  void receive_all(const Take& take) {
    std::erase_if(callers_, [&](const UniqueFd& caller) {
      ReceivedDescriptor received;
      const ReceiveState state = receive_descriptor(caller.get(), received);
      if (state == ReceiveState::received) {
        take(std::move(received));
      }
      return state != ReceiveState::nothing_yet;
    });
  }

 private:
  std::size_t most_;
  std::deque<UniqueFd> callers_;
};

std::string missing_ranks(std::span<const DescriptorExchange::Peer> peers, std::span<const UniqueFd> received) {
  std::string ranks;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (!received[i]) {
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(peers[i].rank);
    }
  }
  return ranks;
}

}  // namespace

DescriptorExchange::DescriptorExchange(int rank, const std::string& parent, std::chrono::milliseconds deadline)
    : rank_(rank), deadline_(Deadline::after(deadline)), directory_(parent, deadline_), listener_(make_socket()) {
  const std::string path = directory_.file_path();
  if (path.size() >= address_.path.size()) {
    throw Error(ErrorCode::invalid_argument,
                "the socket path " + path + " has " + std::to_string(path.size()) + " characters; Unix sockets allow " +
                    std::to_string(address_.path.size() - 1) + ". Name a shorter directory with MOELINK_SOCKET_DIR");
  }
  std::ranges::copy(path, address_.path.begin());
  if (::getrandom(&address_.nonce, sizeof(address_.nonce), 0) != static_cast<ssize_t>(sizeof(address_.nonce))) {
    throw system_error("getrandom failed");
  }
  const sockaddr_un here = socket_address(address_);
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&here), sizeof(here)) != 0 ||
      ::listen(listener_.get(), SOMAXCONN) != 0) {
    throw system_error("listening at " + path + " failed");
  }
}

std::vector<UniqueFd> DescriptorExchange::run(int descriptor, std::span<const Peer> to, std::span<const Peer> from) {
  std::vector<UniqueFd> received(from.size());
  std::size_t num_received = 0;
  std::size_t num_sent = 0;
  Callers callers(from.size() + 16);
  const auto take = [&](ReceivedDescriptor arrived) {
    const auto peer = std::ranges::find(from, arrived.message.sender, &Peer::rank);
    if (arrived.message.nonce != address_.nonce || peer == from.end()) {
      return;
    }
    UniqueFd& place = received[static_cast<std::size_t>(peer - from.begin())];
    if (!place) {
      place = std::move(arrived.descriptor);
      ++num_received;
    }
  };
  while (num_sent < to.size() || num_received < from.size()) {
    while (num_sent < to.size() && try_send(rank_, descriptor, to[num_sent])) {
      ++num_sent;
    }
    if (num_sent == to.size() && num_received == from.size()) {
      break;
    }
    if (deadline_.expired()) {
      throw Error(ErrorCode::timeout, "memory descriptors were not exchanged in time; rank " + std::to_string(rank_) +
                                          " has none of rank(s) " + missing_ranks(from, received));
    }
    const bool all_sent = num_sent == to.size();
    callers.wait(listener_.get(), all_sent ? deadline_.poll_timeout_ms() : kRetryMs);
    callers.accept_all(listener_.get());
    callers.receive_all(take);
  }
  return received;
}

}  // namespace moelink

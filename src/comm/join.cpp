#include "comm/join.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/hmac.hpp"
#include "base/text.hpp"

namespace moelink {
namespace {

constexpr auto kAttemptTime = std::chrono::seconds(5);
constexpr auto kFirstPause = std::chrono::milliseconds(5);
constexpr auto kLongestPause = std::chrono::milliseconds(200);

/// What may succeed when it is tried again: rank 0 may not be up yet, another program may still hold its port.
struct NotYet {
  std::string why;
};

void wait_for_bytes(Connection& connection, std::size_t num_bytes, Deadline deadline) {
  while (connection.unread_bytes() < num_bytes) {
    if (!connection.wait(deadline)) {
      throw NotYet{"something listens there, but does not answer as rank 0 of moelink would"};
    }
    if ((!connection.flush() || !connection.fill()) && connection.unread_bytes() < num_bytes) {
      throw NotYet{"the connection was closed during the handshake"};
    }
  }
}

Greeting read_greeting(Connection& connection, Deadline deadline) {
  wait_for_bytes(connection, Greeting::kBytes, deadline);
  const auto greeting = decode_greeting(*connection.take(Greeting::kBytes));
  if (!greeting) {
    throw NotYet{"something listens there that is not rank 0 of moelink"};
  }
  return *greeting;
}

/// This rank's side of the handshake.
class Handshake {
 public:
  Handshake(const Joiner& joiner, Deadline deadline) : joiner_(joiner), deadline_(deadline) {
    hello_.rank = static_cast<std::uint32_t>(joiner.rank);
    hello_.size = static_cast<std::uint32_t>(joiner.key.size);
    hello_.job = joiner.key.job;
    hello_.has_key = !joiner.key.secret.empty();
  }

  /// Throws NotYet, or Error if trying again would not help.
  void run(Connection& connection) {
    const Deadline attempt = deadline_.earlier_of(Deadline::after(kAttemptTime));
    const Greeting greeting = read_greeting(connection, attempt);
    if (greeting.key_required && !hello_.has_key) {
      throw Error(ErrorCode::mismatch,
                  text("rank 0 asks for a key and this rank, ", joiner_.rank, ", has none; set MOELINK_SECRET"));
    }
    hello_.patience_ms = static_cast<std::uint32_t>(deadline_.remaining().count());
    fill_random(hello_.nonce);
    if (hello_.has_key) {
      hello_.proof = prove(joiner_.key.secret, "rank", greeting, hello_);
    }
    connection.queue(encode(hello_));
    wait_for_bytes(connection, Frame::kHeaderBytes, attempt);
    read_verdict(connection, greeting, attempt);
  }

 private:
  void read_verdict(Connection& connection, const Greeting& greeting, Deadline deadline) {
    constexpr std::size_t kMaxVerdictBytes = 8192;
    const FrameHeader header = decode_frame_header(connection.peek(Frame::kHeaderBytes));
    if (header.payload_bytes > kMaxVerdictBytes) {
      throw NotYet{"something listens there that is not rank 0 of moelink"};
    }
    wait_for_bytes(connection, Frame::kHeaderBytes + header.payload_bytes, deadline);
    const Frame verdict = *connection.take_frame(kMaxVerdictBytes);
    if (verdict.type == FrameType::refuse) {
      const GroupFault reason = decode_fault(verdict.payload);
      if (joiner_.paths_are_guesses) {
        throw NotYet{reason.sentence};
      }
      throw Error(reason.code, text("rank 0 turned this rank, ", joiner_.rank, ", away: ", reason.sentence));
    }
    if (verdict.type != FrameType::accept) {
      throw NotYet{"rank 0 did not finish the handshake"};
    }
    if (hello_.has_key &&
        !equal_in_constant_time(verdict.payload, prove(joiner_.key.secret, "hub", greeting, hello_))) {
      throw Error(ErrorCode::peer, "rank 0 could not prove that it knows MOELINK_SECRET");
    }
  }

  const Joiner& joiner_;
  Deadline deadline_;
  Hello hello_;
};

std::unique_ptr<SocketBootstrap> try_path(const Joiner& joiner, const Path& path, Deadline deadline) {
  UniqueFd fd;
  try {
    fd = connect_to(path.address, path.source ? &*path.source : nullptr,
                    deadline.earlier_of(Deadline::after(kAttemptTime)));
  } catch (const Error& error) {
    throw NotYet{error.what()};
  }
  if (!is_own_user(fd.get())) {
    throw NotYet{text(path.address.to_string(), " belongs to another user")};
  }
  Connection connection(std::move(fd));
  Handshake(joiner, deadline).run(connection);
  return std::make_unique<SocketBootstrap>(joiner.rank, joiner.key.size, std::move(connection), deadline);
}

}  // namespace

std::unique_ptr<SocketBootstrap> open_group(const Joiner& joiner, std::vector<UniqueFd> listeners,
                                            const std::string& where) {
  const Deadline deadline = Deadline::after(joiner.patience);
  auto [ours, hubs] = socket_pair();
  auto hub =
      std::make_unique<Hub>(Hub::Options{joiner.key, std::move(listeners), std::move(hubs), where, joiner.patience});
  Connection connection(std::move(ours));
  try {
    Handshake(joiner, deadline).run(connection);
  } catch (const NotYet& obstacle) {
    throw Error(ErrorCode::system, text("rank 0 cannot reach its own hub: ", obstacle.why));
  }
  return std::make_unique<SocketBootstrap>(joiner.rank, joiner.key.size, std::move(connection), deadline,
                                           std::move(hub));
}

std::unique_ptr<SocketBootstrap> join_group(const Joiner& joiner, const std::function<std::vector<Path>()>& find_paths,
                                            const std::string& where) {
  const Deadline deadline = Deadline::after(joiner.patience);
  std::string obstacle = "no address was tried";
  for (auto pause = kFirstPause; !deadline.expired();
       pause = std::min<std::chrono::milliseconds>(2 * pause, kLongestPause)) {
    std::vector<Path> paths;
    try {
      paths = find_paths();
    } catch (const Error& error) {
      obstacle = error.what();
    }
    for (const Path& path : paths) {
      try {
        return try_path(joiner, path, deadline);
      } catch (const NotYet& not_yet) {
        obstacle = not_yet.why;
      }
    }
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(pause, deadline.remaining()));
  }
  throw Error(ErrorCode::timeout, text("rank ", joiner.rank, " did not reach rank 0 at ", where, " within ",
                                       to_string(joiner.patience), "; last: ", obstacle));
}

}  // namespace moelink

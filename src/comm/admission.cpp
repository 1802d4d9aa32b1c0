#include "comm/admission.hpp"

#include <algorithm>
#include <iterator>

#include "base/hmac.hpp"
#include "base/socket.hpp"
#include "base/text.hpp"

namespace moelink {
namespace {

constexpr auto kHandshakeTime = std::chrono::seconds(5);
constexpr std::size_t kMaxVisitors = 256;
constexpr std::size_t kMaxRefusalsKept = 4;

}  // namespace

Admission::Admission(GroupKey key, std::vector<UniqueFd> listeners)
    : key_(std::move(key)), listeners_(std::move(listeners)) {}

void Admission::take_in(UniqueFd fd, std::string from) {
  Visitor visitor{Connection(std::move(fd)), std::move(from), {}, Deadline::after(kHandshakeTime)};
  visitor.greeting.key_required = !key_.secret.empty();
  fill_random(visitor.greeting.nonce);
  visitor.connection.queue(encode(visitor.greeting));
  visitors_.push_back(std::move(visitor));
  // A flood pushes out the oldest. A rank among them tries again; its handshake takes a round trip, not seconds.
  if (visitors_.size() > kMaxVisitors) {
    visitors_.pop_front();
  }
}

void Admission::collect(std::vector<pollfd>& waits) const {
  for (const UniqueFd& listener : listeners_) {
    waits.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
  }
  for (const Visitor& visitor : visitors_) {
    const auto events = static_cast<short>(POLLIN | (visitor.connection.wants_write() ? POLLOUT : 0));
    waits.push_back({.fd = visitor.connection.fd(), .events = events, .revents = 0});
  }
}

std::optional<Deadline> Admission::next_deadline() const {
  return visitors_.empty() ? std::nullopt : std::optional(visitors_.front().until);
}

std::vector<Candidate> Admission::advance() {
  for (const UniqueFd& listener : listeners_) {
    accept_all(listener.get());
  }
  std::vector<Candidate> candidates;
  std::deque<Visitor> staying;
  for (Visitor& visitor : visitors_) {
    if (advance(visitor, candidates)) {
      staying.push_back(std::move(visitor));
    }
  }
  visitors_ = std::move(staying);
  return candidates;
}

void Admission::accept_all(int listener) {
  // Bounded, so that a flood at one door cannot keep the hub from everything else.
  for (std::size_t i = 0; i < kMaxVisitors; ++i) {
    try {
      auto [fd, from] = accept_from(listener);
      if (!fd) {
        return;
      }
      if (is_own_user(fd.get())) {
        take_in(std::move(fd), from.to_string());
      }
    } catch (const Error&) {
      // Out of descriptors: give back those of the oldest half, who have had the most time.
      visitors_.erase(visitors_.begin(), visitors_.begin() + static_cast<std::ptrdiff_t>((visitors_.size() + 1) / 2));
      return;
    }
  }
}

bool Admission::advance(Visitor& visitor, std::vector<Candidate>& candidates) {
  Connection& connection = visitor.connection;
  // One byte more than a hello would already be a violation; reading little keeps garbage from taking memory.
  const bool alive = connection.flush() && connection.fill(Hello::kBytes + 1 - connection.unread_bytes());
  const auto magic = connection.peek(kWireMagic.size());
  if (!std::ranges::equal(magic, bytes_of(kWireMagic).first(magic.size())) ||
      connection.unread_bytes() > Hello::kBytes) {
    return false;
  }
  if (const auto bytes = connection.take(Hello::kBytes)) {
    const Hello hello = *decode_hello(*bytes);
    if (const auto reason = judge(visitor.greeting, hello)) {
      refuse(connection, visitor.from, *reason);
    } else {
      candidates.push_back({std::move(connection), visitor.from, hello, visitor.greeting});
    }
    return false;
  }
  return alive && !visitor.until.expired();
}

std::optional<GroupFault> Admission::judge(const Greeting& greeting, const Hello& hello) const {
  if (hello.version != kWireVersion) {
    return GroupFault{ErrorCode::mismatch, -1,
                      text("it speaks version ", hello.version, " of the bootstrap protocol, rank 0 speaks ",
                           kWireVersion, "; every rank must run the same moelink")};
  }
  if (hello.has_key != !key_.secret.empty()) {
    return GroupFault{ErrorCode::mismatch, -1,
                      hello.has_key ? "it has a MOELINK_SECRET and rank 0 has none" : "it has no MOELINK_SECRET"};
  }
  if (hello.has_key && !equal_in_constant_time(prove(key_.secret, "rank", greeting, hello), hello.proof)) {
    return GroupFault{ErrorCode::peer, -1, "wrong key: its MOELINK_SECRET is not that of rank 0"};
  }
  if (hello.job != key_.job) {
    return GroupFault{ErrorCode::mismatch, -1, "it belongs to another job; two jobs may not share one port"};
  }
  if (hello.size != static_cast<std::uint32_t>(key_.size) || hello.rank >= hello.size) {
    return GroupFault{
        ErrorCode::mismatch, -1,
        text("it was started as rank ", hello.rank, " of ", hello.size, ", rank 0 as one of ", key_.size)};
  }
  return std::nullopt;
}

void Admission::accept(Candidate& candidate) const {
  Frame frame{FrameType::accept};
  const Proof proof = key_.secret.empty() ? Proof{} : prove(key_.secret, "hub", candidate.greeting, candidate.hello);
  frame.payload.assign(proof.begin(), proof.end());
  candidate.connection.queue(frame);
}

void Admission::refuse(Connection& connection, const std::string& from, const GroupFault& reason) {
  refusals_.push_back(text(from, ": ", reason.sentence));
  if (refusals_.size() > kMaxRefusalsKept) {
    refusals_.pop_front();
  }
  // A few bytes on a fresh connection go out at once or not at all; nobody waits for a stranger.
  connection.queue(Frame{FrameType::refuse, 0, encode(reason)});
  if (connection.flush()) {
    connection.finish_sending();
  }
}

void Admission::close() {
  listeners_.clear();
  visitors_.clear();
}

std::string Admission::describe_refusals() const {
  std::string all;
  for (const std::string& refusal : refusals_) {
    all.append(all.empty() ? "; turned away: " : "; ").append(refusal);
  }
  return all;
}

}  // namespace moelink

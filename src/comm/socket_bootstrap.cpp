#include "comm/socket_bootstrap.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"
#include "runtime/thread.hpp"

namespace moelink {
namespace {

/// The hub judges deadlines and names who is missing; a rank waits this much longer for the verdict before it blames
/// the hub itself.
constexpr auto kVerdictTime = std::chrono::milliseconds(500);
constexpr auto kFarewellTime = std::chrono::seconds(1);

std::size_t max_result_bytes(int size) {
  return static_cast<std::size_t>(size) * (kMaxContributionBytes + sizeof(std::uint32_t));
}

}  // namespace

SocketBootstrap::SocketBootstrap(int rank, int size, Connection connection, Deadline deadline, std::unique_ptr<Hub> hub)
    : rank_(rank), size_(size), hub_(std::move(hub)), connection_(std::move(connection)) {
  await_start(Deadline(deadline.when() + kVerdictTime));
  thread_ = start_thread("moelink-ranks", [this] { run(); });
}

SocketBootstrap::~SocketBootstrap() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wakeup_.wake();
  thread_.join();
}

void SocketBootstrap::await_start(Deadline deadline) {
  bool alive = true;
  while (true) {
    if (const auto frame = connection_.take_frame(max_result_bytes(size_))) {
      if (frame->type == FrameType::start) {
        return;
      }
      const GroupFault fault = frame->type == FrameType::fault ? decode_fault(frame->payload)
                                                               : fault_of_hub("left before every rank had joined");
      throw Error(fault.code, fault.sentence);
    }
    if (!alive) {
      throw Error(ErrorCode::peer, fault_of_hub("closed the connection before every rank had joined").sentence);
    }
    if (!connection_.wait(deadline)) {
      throw Error(ErrorCode::timeout, fault_of_hub("did not say who is missing when time was up").sentence);
    }
    alive = connection_.flush() && connection_.fill();
  }
}

std::vector<Bytes> SocketBootstrap::all_gather(std::string_view what, std::span<const std::byte> mine,
                                               std::chrono::milliseconds deadline) {
  check_contribution(*this, what, mine.size());
  faults_.check();
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(deadline.count()));
  out.string(what);
  out.block(mine);

  std::unique_lock lock(mutex_);
  outgoing_.push_back({FrameType::contribute, ++round_, out.take()});
  wakeup_.wake();
  const auto done = [&] { return result_ || hub_left_ || faults_.raised(); };
  const bool in_time = woken_.wait_until(lock, Deadline::Clock::now() + deadline + kVerdictTime, done);
  std::optional<Frame> result = std::exchange(result_, std::nullopt);
  const bool hub_left = hub_left_;
  lock.unlock();

  if (!in_time) {
    raise({ErrorCode::timeout, 0, text("'", what, "': rank 0 did not answer within ", to_string(deadline))}, true);
  } else if (!result && hub_left) {
    raise({ErrorCode::peer, 0,
           text("rank 0 cannot take part in '", what, "': it has left (its communicator was destroyed)")},
          false);
  }
  if (!result) {
    faults_.check();
  }
  ByteReader in(result->payload);
  std::vector<Bytes> parts;
  for (int r = 0; r < size_; ++r) {
    const auto part = in.block();
    parts.emplace_back(part.begin(), part.end());
  }
  return parts;
}

void SocketBootstrap::abort(GroupFault fault) noexcept { raise(std::move(fault), true); }

void SocketBootstrap::raise(GroupFault fault, bool tell_hub) noexcept {
  const GroupFault kept = faults_.raise(std::move(fault));
  const std::scoped_lock lock(mutex_);
  if (tell_hub) {
    outgoing_.push_back({FrameType::fault, 0, encode(kept)});
    wakeup_.wake();
  }
  woken_.notify_all();
}

GroupFault SocketBootstrap::fault_of_hub(std::string_view why) const {
  return {ErrorCode::peer, 0, text("rank 0, through which the ranks are connected, ", why)};
}

void SocketBootstrap::run() {
  while (true) {
    queue_outgoing();
    // Before the first wait too: the hub may have said more in the breath that said start.
    const bool more = read_frames();
    {
      const std::scoped_lock lock(mutex_);
      if (stop_ || !more) {
        break;
      }
    }
    std::array<pollfd, 2> waits = {
        pollfd{.fd = wakeup_.fd(), .events = POLLIN, .revents = 0},
        pollfd{.fd = connection_.fd(),
               .events = static_cast<short>(POLLIN | (connection_.wants_write() ? POLLOUT : 0)),
               .revents = 0}};
    ::poll(waits.data(), waits.size(), -1);
    wakeup_.reset();
  }
  queue_outgoing();
  say_farewell();
}

void SocketBootstrap::queue_outgoing() {
  const std::scoped_lock lock(mutex_);
  for (const Frame& frame : std::exchange(outgoing_, {})) {
    connection_.queue(frame);
  }
}

bool SocketBootstrap::read_frames() {
  const bool alive = connection_.flush() && connection_.fill();
  try {
    while (auto frame = connection_.take_frame(max_result_bytes(size_))) {
      handle(std::move(*frame));
    }
  } catch (const Error& error) {
    raise(fault_of_hub(text("broke the protocol: ", error.what())), true);
    return false;
  }
  const bool hub_left = [&] {
    const std::scoped_lock lock(mutex_);
    return hub_left_;
  }();
  if (!alive && !hub_left) {
    raise(fault_of_hub("closed its connection without a farewell: its process ended or its network failed"), false);
  }
  return alive && !hub_left;
}

void SocketBootstrap::handle(Frame frame) {
  if (frame.type == FrameType::fault) {
    raise(decode_fault(frame.payload), false);
    return;
  }
  const std::scoped_lock lock(mutex_);
  if (frame.type == FrameType::result && frame.round == round_) {
    result_ = std::move(frame);
  } else if (frame.type == FrameType::leave) {
    hub_left_ = true;
  } else {
    throw Error(ErrorCode::peer, text("a message of type ", static_cast<std::uint32_t>(frame.type), " for round ",
                                      frame.round, " came in round ", round_));
  }
  woken_.notify_all();
}

void SocketBootstrap::say_farewell() {
  const Deadline deadline = Deadline::after(kFarewellTime);
  connection_.queue({FrameType::leave});
  while (connection_.wants_write()) {
    if (!connection_.flush() || (connection_.wants_write() && !connection_.wait(deadline))) {
      return;
    }
  }
  connection_.finish_sending();
  // Closing with unread bytes would reset the connection, and the hub might lose the farewell: read until it closes.
  while (connection_.fill() && connection_.wait(deadline)) {
    while (connection_.unread_bytes() > 0) {
      (void)connection_.take(connection_.unread_bytes());
    }
  }
}

}  // namespace moelink

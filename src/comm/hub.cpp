#include "comm/hub.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/text.hpp"
#include "comm/bootstrap.hpp"
#include "runtime/thread.hpp"

namespace moelink {
namespace {

constexpr auto kLinger = std::chrono::seconds(1);
/// A contribution's name, lengths and patience.
constexpr std::size_t kMaxFrameBytes = kMaxContributionBytes + kMaxLabelBytes + 64;
constexpr std::size_t kMaxResultBytes = std::size_t{1} << 30;

}  // namespace

Hub::Hub(Options options)
    : size_(options.key.size),
      where_(std::move(options.where)),
      patience_(options.patience),
      join_deadline_(Deadline::after(options.patience)),
      admission_(std::move(options.key), std::move(options.listeners)),
      seats_(static_cast<std::size_t>(size_)),
      round_(size_) {
  admission_.take_in(std::move(options.rank0), "this process");
  thread_ = start_thread("moelink-hub", [this] { run(); });
}

Hub::~Hub() {
  stop_.store(true, std::memory_order_release);
  wakeup_.wake();
  thread_.join();
}

void Hub::run() {
  bool stopping = false;
  Deadline linger = Deadline::after(kLinger);
  // Nothing here may end the process: what cannot be handled ends the group instead.
  while (true) {
    if (!stopping && stop_.load(std::memory_order_acquire)) {
      stopping = true;
      linger = Deadline::after(kLinger);
      admission_.close();
      broadcast({FrameType::leave});
    }
    try {
      if (!serve(stopping, linger)) {
        return;
      }
    } catch (const std::exception& error) {
      raise({ErrorCode::system, 0, text("rank 0's hub failed: ", error.what())});
    }
  }
}

bool Hub::serve(bool stopping, Deadline linger) {
  std::optional<Deadline> until;
  const auto sooner = [&](Deadline deadline) { until = until ? until->earlier_of(deadline) : deadline; };
  if (stopping) {
    if (count(Seat::State::joined) == 0 || linger.expired()) {
      return false;
    }
    sooner(linger);
  } else if (joining()) {
    sooner(join_deadline_);
    if (const auto next = admission_.next_deadline()) {
      sooner(*next);
    }
  } else if (!faulted_ && round_.open()) {
    sooner(round_.deadline());
  }
  wait(until);
  if (!stopping && joining()) {
    for (Candidate& candidate : admission_.advance()) {
      admit(std::move(candidate));
    }
  }
  for (int rank = 0; rank < size_; ++rank) {
    serve_seat(rank);
  }
  if (!stopping) {
    check_deadlines();
  }
  return true;
}

void Hub::wait(std::optional<Deadline> until) {
  std::vector<pollfd> waits = {{.fd = wakeup_.fd(), .events = POLLIN, .revents = 0}};
  if (joining()) {
    admission_.collect(waits);
  }
  for (const Seat& seat : seats_) {
    if (seat.connection) {
      const auto events = static_cast<short>(POLLIN | (seat.connection->wants_write() ? POLLOUT : 0));
      waits.push_back({.fd = seat.connection->fd(), .events = events, .revents = 0});
    }
  }
  ::poll(waits.data(), waits.size(), until ? until->poll_timeout_ms() : -1);
  wakeup_.reset();
}

void Hub::admit(Candidate candidate) {
  const int rank = static_cast<int>(candidate.hello.rank);
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (seat.state != Seat::State::empty) {
    admission_.refuse(
        candidate.connection, candidate.from,
        {ErrorCode::peer, rank,
         text("rank ", rank, " has already joined from ", seat.from, "; two processes were started as the same rank")});
    return;
  }
  // Whoever has the least patience left decides, so that everybody learns the missing ranks from here, in time.
  const std::chrono::milliseconds patience(candidate.hello.patience_ms);
  if (const Deadline theirs = Deadline::after(patience); theirs.when() < join_deadline_.when()) {
    join_deadline_ = theirs;
    patience_ = std::min(patience_, patience);
  }
  admission_.accept(candidate);
  seat = {Seat::State::joined, std::move(candidate.connection), candidate.from};
  if (count(Seat::State::joined) == size_) {
    started_ = true;
    admission_.close();  // before anybody hears of the start: the port is free again for the next group
    broadcast({FrameType::start});
  }
}

void Hub::serve_seat(int rank) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (!seat.connection) {
    return;
  }
  const bool alive = seat.connection->flush() && seat.connection->fill();
  try {
    while (seat.connection) {
      auto frame = seat.connection->take_frame(kMaxFrameBytes);
      if (!frame) {
        break;
      }
      handle(rank, std::move(*frame));
    }
  } catch (const Error& error) {
    lose(rank, text("broke the protocol: ", error.what()));
  }
  if (!alive && seat.connection) {
    lose(rank, "closed its connection without a farewell: its process ended or its network failed");
  }
}

void Hub::handle(int rank, Frame frame) {
  switch (frame.type) {
    case FrameType::contribute:
      // After a fault, contributions that crossed its announcement still arrive.
      if (!faulted_) {
        contribute(rank, frame);
      }
      break;
    case FrameType::fault:
      raise(decode_fault(frame.payload));
      break;
    case FrameType::leave:
      farewell(rank);
      break;
    default:
      throw Error(ErrorCode::peer,
                  text("a message of type ", static_cast<std::uint32_t>(frame.type), " is not for the hub"));
  }
}

void Hub::contribute(int rank, const Frame& frame) {
  if (!started_ || frame.round != round_number_) {
    throw Error(ErrorCode::peer, text("a contribution to round ", frame.round, " came in round ", round_number_));
  }
  ByteReader in(frame.payload);
  const std::chrono::milliseconds patience(in.u32());
  const std::string what = in.string();
  const auto bytes = in.block();
  if (auto fault = round_.enter(rank, what, Bytes(bytes.begin(), bytes.end()), patience)) {
    raise(*fault);
  } else if (round_.complete()) {
    send_result();
  }
}

void Hub::send_result() {
  ByteWriter out;
  std::size_t total = 0;
  const std::vector<Bytes> parts = round_.finish();
  for (const Bytes& part : parts) {
    total += part.size() + sizeof(std::uint32_t);
  }
  if (total > kMaxResultBytes) {
    raise({ErrorCode::capacity, -1,
           text("an all-gather of ", total, " bytes in all; at most ", kMaxResultBytes, " can be gathered")});
    return;
  }
  for (const Bytes& part : parts) {
    out.block(part);
  }
  broadcast({FrameType::result, round_number_++, out.take()});
}

void Hub::farewell(int rank) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  seat.state = Seat::State::gone;
  seat.connection.reset();
  if (joining()) {
    raise({ErrorCode::peer, rank, text("rank ", rank, " left before the others had joined")});
  } else if (auto fault = round_.set_away(rank, "it has left (its communicator was destroyed)"); fault) {
    raise(*fault);
  }
}

void Hub::lose(int rank, const std::string& why) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  seat.state = Seat::State::gone;
  seat.connection.reset();
  raise({ErrorCode::peer, rank, text("rank ", rank, " (", seat.from, ") ", why)});
}

void Hub::check_deadlines() {
  if (joining() && join_deadline_.expired()) {
    raise({ErrorCode::timeout, missing().front(),
           text(describe_ranks(missing()), " of ", size_, " did not join at ", where_, " within ", to_string(patience_),
                admission_.describe_refusals())});
  } else if (!faulted_ && round_.open() && round_.deadline().expired()) {
    raise(round_.expired());
  }
}

void Hub::broadcast(const Frame& frame) {
  const Bytes bytes = encode(frame);
  for (Seat& seat : seats_) {
    if (seat.connection) {
      seat.connection->queue(bytes);
      // What the socket does not take, and a connection that turns out broken, are for the next turn of the loop.
      (void)seat.connection->flush();
    }
  }
}

void Hub::raise(const GroupFault& fault) {
  if (!std::exchange(faulted_, true)) {
    admission_.close();
    broadcast({FrameType::fault, 0, encode(fault)});
  }
}

int Hub::count(Seat::State state) const { return static_cast<int>(std::ranges::count(seats_, state, &Seat::state)); }

std::vector<int> Hub::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (seats_[static_cast<std::size_t>(rank)].state == Seat::State::empty) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

}  // namespace moelink

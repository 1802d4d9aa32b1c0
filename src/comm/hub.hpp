// The middle of the star: rank 0's thread that every rank, rank 0 included, is connected to.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/wakeup.hpp"
#include "comm/admission.hpp"
#include "comm/fault_board.hpp"
#include "comm/round.hpp"

namespace moelink {

/// Admits the ranks, gathers their contributions, sends everybody the result, and tells everybody the first fault: a
/// rank that is missing when patience ends, that dies (its connection closes without a farewell), leaves too early or
/// breaks the protocol. It knows nothing of what is gathered.
class Hub {
 public:
  struct Options {
    GroupKey key;
    std::vector<UniqueFd> listeners;
    UniqueFd rank0;                      ///< rank 0's own connection
    std::string where;                   ///< where it listens, for errors
    std::chrono::milliseconds patience;  ///< how long rank 0 waits for the others to join
  };

  /// Starts the thread.
  explicit Hub(Options options);
  /// Says farewell to those who are still there, and waits, for at most a second, until they have read what was sent.
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

 private:
  struct Seat {
    enum class State { empty, joined, gone };
    State state = State::empty;
    std::optional<Connection> connection;  // while joined
    std::string from;
  };

  void run();
  [[nodiscard]] bool serve(bool stopping, Deadline linger);
  void wait(std::optional<Deadline> until);
  void admit(Candidate candidate);
  void serve_seat(int rank);
  void handle(int rank, Frame frame);
  void contribute(int rank, const Frame& frame);
  void farewell(int rank);
  void lose(int rank, const std::string& why);
  void check_deadlines();
  void send_result();
  void broadcast(const Frame& frame);
  void raise(const GroupFault& fault);
  [[nodiscard]] int count(Seat::State state) const;
  [[nodiscard]] std::vector<int> missing() const;
  [[nodiscard]] bool joining() const noexcept { return !started_ && !faulted_; }

  const int size_;
  const std::string where_;
  std::chrono::milliseconds patience_;
  Deadline join_deadline_;
  Admission admission_;
  std::vector<Seat> seats_;
  Round round_;
  std::uint64_t round_number_ = 1;
  bool started_ = false;
  bool faulted_ = false;
  Wakeup wakeup_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace moelink

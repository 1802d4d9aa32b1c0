// Ranks that are connected to a hub.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/wakeup.hpp"
#include "comm/bootstrap.hpp"
#include "comm/connection.hpp"
#include "comm/hub.hpp"

namespace moelink {

/// One rank's side. A thread of its own reads what the hub says, so that a fault is known, and told to those who listen
/// for it, while the rank is busy elsewhere. It sleeps in poll() otherwise.
class SocketBootstrap final : public Bootstrap {
 public:
  /// `connection` has been accepted as `rank` of `size`. Waits until every rank has joined; throws what kept them away.
  /// `hub`: rank 0's.
  SocketBootstrap(int rank, int size, Connection connection, Deadline deadline, std::unique_ptr<Hub> hub = nullptr);
  ~SocketBootstrap() override;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] std::vector<Bytes> all_gather(std::string_view what, std::span<const std::byte> mine,
                                              std::chrono::milliseconds deadline) override;
  void abort(GroupFault fault) noexcept override;
  [[nodiscard]] FaultBoard& faults() noexcept override { return faults_; }

 private:
  void await_start(Deadline deadline);
  void send(Frame frame);
  void raise(GroupFault fault, bool tell_hub) noexcept;
  [[nodiscard]] GroupFault fault_of_hub(std::string_view why) const;

  // On the thread.
  void run();
  void queue_outgoing();
  /// False: nothing more will come.
  [[nodiscard]] bool read_frames();
  void handle(Frame frame);
  void say_farewell();

  const int rank_;
  const int size_;
  std::unique_ptr<Hub> hub_;  // ends after the thread below
  Connection connection_;     // the thread's, once it runs
  FaultBoard faults_;
  Wakeup wakeup_;
  std::mutex mutex_;  // what follows, up to the thread
  std::condition_variable woken_;
  std::deque<Frame> outgoing_;
  std::optional<Frame> result_;
  std::uint64_t round_ = 0;  // the last one that this rank contributed to
  bool hub_left_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace moelink

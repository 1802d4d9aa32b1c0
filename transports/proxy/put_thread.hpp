// The thread that has the transport: it works in rounds, by itself or while threads that wait help it, and runs what
// others ask it to.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "moelink/protocol/put_channel.hpp"
#include "transports/proxy/channel.hpp"
#include "transports/proxy/put_work.hpp"

namespace moelink {

class Idle;

/// A channel that its owner has left, and its regions.
struct LeftChannel {
  std::unique_ptr<PutChannel> channel;
  std::shared_ptr<void> regions;
};

class PutThread {
 public:
  using OnFailure = std::function<void(int peer, const std::string& sentence)>;

  /// Starts. `name`: the transport, for people.
  [[nodiscard]] static std::shared_ptr<PutThread> start(std::unique_ptr<PutWork> work, std::string name, bool spins,
                                                        OnFailure on_failure);
  /// Regions, and with them their peers' right to write, go before the memory of channels that were left.
  ~PutThread() { work_.reset(); }
  PutThread(const PutThread&) = delete;
  PutThread& operator=(const PutThread&) = delete;

  /// Ends the thread. One that is stuck in the transport, and does not end in time, is left to itself, with a warning:
  /// it keeps this object, and tells nobody of anything any more.
  void end(std::chrono::milliseconds patience) noexcept;

  /// Runs `work` on the thread, and throws what it throws; ErrorCode::timeout if the thread does not come to it in
  /// time, for it is stuck in the transport: then it never does. Work that has begun is waited for however long it
  /// takes, since it uses what the caller has: a driver that never comes back from registering memory is not bounded
  /// here, nor, while it does not, is end().
  void call(std::chrono::milliseconds patience, const std::function<void(PutWork&)>& work);

  /// Takes a channel over: says farewell, and lists it in take_left() when every remote has, too, or puts have failed,
  /// or nobody waits any more. On the thread, in a call.
  void part(LeftChannel left);
  [[nodiscard]] bool is_parting() const noexcept { return num_parting_.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] std::vector<LeftChannel> take_left();
  /// Nobody waits for farewells any more.
  void abandon() noexcept { is_abandoned_.store(true, std::memory_order_release); }

  [[nodiscard]] PutHelper helper() noexcept;
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_.load(std::memory_order_acquire); }
  void check() const;

 private:
  struct Call {
    const std::function<void(PutWork&)>* work = nullptr;
    std::exception_ptr thrown{};
    bool is_done = false;
  };

  PutThread(std::unique_ptr<PutWork> work, std::string name, bool spins, OnFailure on_failure);
  void run();
  void run_round(Idle& idle);
  [[nodiscard]] bool is_helped();
  bool serve_calls();
  bool work();
  void part_from_peers();
  void fail(const PutFailure& failure);

  const std::string name_;
  const bool spins_;
  std::mutex work_mutex_;  // of what follows, and before any other
  std::unique_ptr<PutWork> work_;
  std::vector<LeftChannel> parting_;  // peers may still put into them
  std::atomic<u64> num_helps_{0};
  u64 num_helps_seen_ = 0;  // by the thread

  std::mutex left_mutex_;
  std::vector<LeftChannel> left_;  // nobody uses them any longer; memory is given back by whoever calls, not here
  std::mutex tell_mutex_;          // held while the failure is told
  OnFailure on_failure_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Call*> calls_;
  std::optional<PutFailure> failure_;
  bool has_ended_ = false;
  std::atomic<bool> has_calls_{false};
  std::atomic<std::size_t> num_parting_{0};
  std::atomic<bool> is_abandoned_{false};
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace moelink

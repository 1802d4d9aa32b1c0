// The thread between kernels and the network: it takes puts out of rings, posts them, and turns arrivals into flags
// that kernels poll. It never waits: not for a kernel, not for a peer, not for room in a queue.
#pragma once

#include <atomic>
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

#include "base/deadline.hpp"
#include "transports/proxy/channel.hpp"
#include "transports/put.hpp"
#include "transports/rendezvous.hpp"

namespace moelink {

class ChannelWorker;
class Idle;

struct PutProxyOptions {
  PutOptions put{};
  /// Poll without a pause, as a thread with a core of its own does. Nothing: if the machine has eight or more.
  std::optional<bool> spin{};
  /// How long the destructor of a channel waits for remotes that may still put into it.
  std::chrono::milliseconds farewell_deadline{5'000};
  /// Called once, by the proxy's thread or one that helps it, when puts have failed; `peer` is -1 where nobody else is
  /// to blame. It asks kernels to give up, and tells the group. Must not wait or throw.
  std::function<void(int peer, const std::string& sentence)> on_failure = nullptr;
};

/// One for each rank. Its channels go before it, or are left to it.
class PutProxy {
 public:
  /// `transport`: connected (put_group.hpp). From here on the proxy alone touches it. A put that a peer does
  /// not take within options.put.deadline is a failure that names the peer.
  PutProxy(std::unique_ptr<PutTransport> transport, PutProxyOptions options);
  /// Waits for the farewells to channels that were left to it, at most options.farewell_deadline, and not after a
  /// failure.
  ~PutProxy();
  PutProxy(const PutProxy&) = delete;
  PutProxy& operator=(const PutProxy&) = delete;

  /// Collective over all ranks, in the same order everywhere. If it fails on one rank, all ranks throw.
  [[nodiscard]] std::unique_ptr<PutChannel> open(Rendezvous& rendezvous, const PutChannelConfig& config);

  /// Takes over a channel whose kernels have ended, and its regions: says farewell, and keeps both until every remote
  /// has said farewell, too, or puts have failed, or the proxy goes. Waits for 20 ms at most; what is kept longer is
  /// freed in a later open() or leave(), since freeing memory of a GPU may wait for its kernels, and they for the
  /// proxy's thread.
  void leave(std::unique_ptr<PutChannel> channel, std::shared_ptr<void> regions) noexcept;
  /// The group has failed: nobody waits for farewells any more.
  void abandon() noexcept { is_abandoned_.store(true, std::memory_order_release); }

  /// For threads of the host that wait for puts: one round of the work, if nobody else is at it. Nothing to call where
  /// the proxy spins on a core of its own.
  [[nodiscard]] PutHelper helper() noexcept;

  /// Throws the failure, if there is one. Never waits.
  void check() const;

  [[nodiscard]] PutKind kind() const noexcept { return kind_; }
  /// The transport, for people.
  [[nodiscard]] const std::string& description() const noexcept { return description_; }
  [[nodiscard]] const PutOptions& options() const noexcept { return options_.put; }

 private:
  friend class PutChannel;
  using Clock = std::chrono::steady_clock;
  struct Call {
    const std::function<void()>* work = nullptr;
    std::exception_ptr thrown{};
    bool is_done = false;
  };
  struct Peer {
    std::vector<Put> waiting;  // taken from rings, not yet started: from `next` on
    std::size_t next = 0;
    u64 num_started = 0;
    u64 num_sent = 0;
    u64 num_sent_before = 0;  // at the last look
    Clock::time_point since;  // when num_sent last changed, as looks saw it
    [[nodiscard]] bool is_busy() const noexcept { return next < waiting.size() || num_started != num_sent; }
  };

  /// Runs `work` on the proxy's thread, and throws what it throws; ErrorCode::timeout if the thread does not come to it
  /// within options.put.deadline, for it is stuck in the transport.
  void call(const std::function<void()>& work);
  void connect(Rendezvous& rendezvous, const PutChannel& channel, const PutChannelConfig& config);
  [[nodiscard]] u64 held_exchanges() const;
  void close(u32 exchange);
  void forget(u32 exchange, bool is_farewell_complete);
  void part_from_peers();
  void free_what_is_left();
  void wait_for_farewells(std::chrono::milliseconds patience) const;
  static void keep_forever(std::unique_ptr<PutChannel> channel, std::shared_ptr<void> regions);
  [[nodiscard]] bool say_farewells(u32 exchange);

  void run();
  void run_round(Idle& idle);
  [[nodiscard]] bool is_helped();
  bool serve_calls();
  bool work();
  bool take_puts();
  bool start_puts();
  bool take_events();
  void look_at_clock();
  [[nodiscard]] bool has_channels() const;
  [[nodiscard]] bool is_under_way() const;
  void fail(const PutFailure& failure);
  [[nodiscard]] ChannelWorker& worker_of(int peer, PutImmediate immediate);

  std::unique_ptr<PutTransport> transport_;
  PutProxyOptions options_;
  PutKind kind_;
  std::string description_;
  std::vector<Peer> peers_;                              // by rank
  std::vector<std::unique_ptr<ChannelWorker>> workers_;  // by exchange; null where there is none
  std::vector<bool> retired_;                            // exchanges whose peers did not say farewell
  struct Leaving {
    std::unique_ptr<PutChannel> channel;
    std::shared_ptr<void> regions;
  };
  std::vector<Leaving> leaving_;  // peers may still put into them
  bool spins_;
  u64 num_rounds_ = 0;
  std::mutex work_mutex_;  // of all of the above, and the transport; before any other
  std::atomic<u64> num_helps_{0};
  u64 num_helps_seen_ = 0;  // by the proxy's thread

  std::mutex left_mutex_;
  std::vector<Leaving> left_;  // nobody uses them any longer; memory is given back by whoever calls, not by the thread
  mutable std::mutex mutex_;   // of what follows
  std::condition_variable changed_;
  std::deque<Call*> calls_;
  std::optional<PutFailure> failure_;
  std::atomic<bool> has_calls_{false};
  std::atomic<std::size_t> num_leaving_{0};
  std::atomic<bool> is_abandoned_{false};
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace moelink

// The thread between kernels and the network: it takes puts out of rings, posts them, and turns arrivals into flags
// that kernels poll. It never waits: not for a kernel, not for a peer, not for room in a queue.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "transports/proxy/channel.hpp"
#include "transports/put.hpp"
#include "transports/rendezvous.hpp"

namespace moelink {

class PutThread;
class PutWork;

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
  /// `transport`: connected (put_group.hpp). From here on the proxy alone touches it. A put that a peer does not take
  /// within options.put.deadline is a failure that names the peer.
  PutProxy(std::unique_ptr<PutTransport> transport, PutProxyOptions options);
  /// Waits for the farewells to channels that were left to it, at most options.farewell_deadline, and not after a
  /// failure; then for the thread, 5 s (or put.deadline) at most. A thread that is stuck in the transport is left to
  /// itself, with a warning.
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
  void abandon() noexcept;

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

  /// As PutThread::call(), with the deadline of set-up, or the shorter one of what ends.
  void call(const std::function<void(PutWork&)>& work);
  void call_to_end(const std::function<void(PutWork&)>& work);
  void connect(Rendezvous& rendezvous, const PutChannel& channel, const PutChannelConfig& config);
  void take_back(std::unique_ptr<PutChannel> channel) noexcept;
  void close(u32 exchange);
  void wait_for_farewells(std::chrono::milliseconds patience) const;
  [[nodiscard]] std::chrono::milliseconds patience_of_end() const;

  PutProxyOptions options_;
  PutKind kind_;
  std::string description_;
  std::shared_ptr<PutThread> thread_;
};

}  // namespace moelink

// What a proxy does in a round: takes puts out of rings, starts them, and turns arrivals into flags. No threads here;
// who calls holds the proxy's lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "moelink/protocol/put_immediate.hpp"
#include "transports/proxy/channel_worker.hpp"
#include "transports/put.hpp"

namespace moelink {

class PutWork {
 public:
  static constexpr std::size_t kMaxExchanges = std::size_t{1} << PutImmediate::kExchangeBits;

  /// `transport`: connected.
  PutWork(std::unique_ptr<PutTransport> transport, PutOptions options);

  [[nodiscard]] PutTransport& transport() noexcept { return *transport_; }
  [[nodiscard]] const PutOptions& options() const noexcept { return options_; }

  /// One round. Whether there was anything to do. Throws PutFailure; a peer that takes no put within options().deadline
  /// is one.
  bool round();
  [[nodiscard]] bool is_under_way() const;

  /// The channel's, by the exchange's number; null where there is none.
  [[nodiscard]] std::unique_ptr<ChannelWorker>& worker(u32 exchange) { return workers_[exchange]; }
  [[nodiscard]] bool has_channels() const;
  /// Numbers that are in use, or whose peers did not say farewell: one bit each.
  [[nodiscard]] u64 held_exchanges() const;

  /// Whether all puts are sent, and every remote has said farewell. Says it itself once its puts are sent: so nothing
  /// of this rank is under way when others hear of it.
  [[nodiscard]] bool say_farewells(u32 exchange);
  void forget(u32 exchange, bool is_farewell_complete);

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    std::vector<Put> waiting;  // taken from rings, not yet started: from `next` on
    std::size_t next = 0;
    u64 num_started = 0;
    u64 num_sent = 0;
    u64 num_sent_before = 0;  // at the last look
    Clock::time_point since;  // when num_sent last changed, as looks saw it
    [[nodiscard]] bool is_busy() const noexcept { return next < waiting.size() || num_started != num_sent; }
  };

  bool take_puts();
  bool start_puts();
  bool take_events();
  void look_at_clock();
  [[nodiscard]] ChannelWorker& worker_of(int peer, PutImmediate immediate);

  std::unique_ptr<PutTransport> transport_;
  PutOptions options_;
  std::vector<Peer> peers_;                              // by rank
  std::vector<std::unique_ptr<ChannelWorker>> workers_;  // by exchange; their regions go before the transport
  std::vector<bool> retired_;                            // exchanges whose peers did not say farewell
  u64 num_rounds_ = 0;
};

}  // namespace moelink

// Where requests come in: on rank 0, from any thread, for whichever rank has the least to do.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/desk/messages.hpp"
#include "engine/desk/metrics.hpp"
#include "engine/desk/reply.hpp"
#include "engine/requests/engine.hpp"

namespace moelink::engine {

/// Why a request is not taken now, whatever it asks for.
class NotNow : public std::runtime_error {
 public:
  enum class Reason : std::uint8_t { too_many, closed };
  NotNow(Reason reason, const std::string& words) : std::runtime_error(words), reason_(reason) {}
  [[nodiscard]] Reason reason() const noexcept { return reason_; }

 private:
  Reason reason_;
};

struct DeskOptions {
  int num_ranks = 1;                  ///< that have requests of their own: 1 if all work on the same
  std::int64_t max_running = 64;      ///< requests that a rank can have at the same time
  std::int64_t max_waiting = 256;     ///< requests that are taken beyond those of all ranks
  bool messages_have_a_bound = true;  ///< orders travel between ranks
};

class Desk;

/// A request that was taken. Whoever lets go of it before its end (a client that hangs up) cancels it.
class OpenRequest {
 public:
  OpenRequest(Desk& desk, Ticket ticket, std::shared_ptr<Reply> reply)
      : desk_(&desk), ticket_(ticket), reply_(std::move(reply)) {}
  ~OpenRequest();
  OpenRequest(const OpenRequest&) = delete;
  OpenRequest& operator=(const OpenRequest&) = delete;

  [[nodiscard]] Ticket ticket() const noexcept { return ticket_; }
  [[nodiscard]] Reply::News wait(std::chrono::milliseconds longest) { return reply_->wait(longest); }
  /// Nothing more is wanted of it, and this is how it counts.
  void leave(FinishReason reason);

 private:
  Desk* desk_;
  Ticket ticket_;
  std::shared_ptr<Reply> reply_;
};

class Desk {
 public:
  /// `engine`: rank 0's, which says what can be asked of all.
  Desk(const Engine& engine, const DeskOptions& options);

  // For any thread.

  /// Throws NotNow if submit() would now, whatever was asked for: before work is done for a request.
  void expect_room();
  /// Throws what Engine::check() throws; NotNow if too many wait, or after close() or fail(). The desk must live longer
  /// than what it returns.
  [[nodiscard]] std::unique_ptr<OpenRequest> submit(Request request);
  /// Takes no more requests: `why` is what those hear who ask.
  void close(const std::string& why);
  /// Waits until whoever opened a request has let go of it; false if that takes longer.
  [[nodiscard]] bool wait_until_empty(std::chrono::milliseconds longest);
  /// Ends what is left and lets all ranks end.
  void stop();
  /// What ended the desk to new requests, if anything did.
  [[nodiscard]] std::optional<std::string> closed() const;
  [[nodiscard]] std::string metrics() const { return metrics_.text(); }

  // For the thread of rank 0's steps.

  /// Waits until there is an order, or for so long.
  void wait_for_orders(std::chrono::milliseconds longest);
  /// Into the next message.
  void take_orders(StepMessage& message);
  void deliver(Event event);
  void report(const std::vector<RankReport>& ranks);
  /// All requests have failed, and there will be no others.
  void fail(const std::string& why) noexcept;

 private:
  friend class OpenRequest;
  using Clock = std::chrono::steady_clock;

  struct Active {
    std::int32_t rank = 0;
    std::shared_ptr<Reply> reply;
    bool sent = false;
    std::optional<FinishReason> left;  ///< how it counts, if nobody waits for it any more
    std::int64_t num_tokens = 0;
    Clock::time_point last;  ///< arrival of the request, then of its last token
  };

  void leave(Ticket ticket, FinishReason reason);
  void let_go();
  void refuse_if_full();
  void finish(std::map<Ticket, Active>::iterator request, Finish finish);
  [[nodiscard]] std::int32_t idlest_rank() const;

  const Engine& engine_;
  DeskOptions options_;
  Metrics metrics_;

  mutable std::mutex mutex_;
  std::condition_variable orders_arrived_;
  std::condition_variable let_go_;
  std::deque<Order> orders_;
  std::map<Ticket, Active> active_;
  std::vector<std::int64_t> num_active_;  ///< by rank
  std::int64_t num_open_ = 0;
  Ticket last_ticket_ = 0;
  std::optional<std::string> closed_;
  bool stop_ = false;
};

}  // namespace moelink::engine

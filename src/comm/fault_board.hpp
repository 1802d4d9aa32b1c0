// Where the fault of a group of ranks is kept: the first one wins and stays.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "moelink/error.hpp"

namespace moelink {

/// Why a group of ranks can go no further.
struct GroupFault {
  ErrorCode code = ErrorCode::peer;  ///< timeout, peer, aborted, mismatch, ...
  int rank = -1;                     ///< the rank it is about; -1: nobody in particular
  std::string sentence;
};

/// Thread-safe. Listeners hear of the fault once, from whichever thread met it.
class FaultBoard {
 public:
  using Listener = std::function<void(const GroupFault&)>;

  /// Ends a subscription when it goes: after that the listener is not running and will not run.
  class Subscription {
   public:
    Subscription() = default;
    Subscription(Subscription&&) noexcept = default;
    Subscription& operator=(Subscription&& other) noexcept;
    ~Subscription() { end(); }

   private:
    friend class FaultBoard;
    struct Listeners;
    Subscription(std::shared_ptr<Listeners> listeners, int key) : listeners_(std::move(listeners)), key_(key) {}
    void end() noexcept;
    std::shared_ptr<Listeners> listeners_;  // outlives the board if need be
    int key_ = 0;
  };

  FaultBoard();
  FaultBoard(const FaultBoard&) = delete;
  FaultBoard& operator=(const FaultBoard&) = delete;

  /// Keeps `fault` if it is the first. Returns the one that is kept.
  GroupFault raise(GroupFault fault) noexcept;
  [[nodiscard]] bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  [[nodiscard]] std::optional<GroupFault> fault() const;
  /// Throws the fault, again and again. Never waits.
  void check() const;

  /// `listener` stores a word or wakes a thread; it must not throw, wait, or call the group. A fault that is already
  /// there is told at once.
  [[nodiscard]] Subscription subscribe(Listener listener);

 private:
  std::shared_ptr<Subscription::Listeners> listeners_;
  std::atomic<bool> raised_{false};
};

struct FaultBoard::Subscription::Listeners {
  std::mutex mutex;  // held while listeners run
  std::optional<GroupFault> fault;
  std::map<int, Listener> by_key;
  int next_key = 0;
};

}  // namespace moelink

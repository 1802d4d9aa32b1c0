// What ranks of one process share with each other: inboxes and regions, by number, because an address is bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "transports/put.hpp"

namespace moelink::loopback {

/// Where a rank's immediates arrive. Closed when the rank goes.
class Inbox {
 public:
  explicit Inbox(std::size_t num_ranks, std::size_t depth) : waiting_(num_ranks), depth_(depth) {}

  enum class Outcome : unsigned char { delivered, full, closed };
  /// `copy` moves the payload; it runs if there is room, before the immediate can be seen.
  template <class Copy>
  Outcome deliver(int sender, std::uint32_t immediate, const Copy& copy) {
    {
      const std::scoped_lock lock(mutex_);
      if (closed_) return Outcome::closed;
      if (waiting_[static_cast<std::size_t>(sender)] == depth_) return Outcome::full;
      ++waiting_[static_cast<std::size_t>(sender)];
    }
    const bool copied = copy();
    const std::scoped_lock lock(mutex_);
    if (!copied || closed_) return Outcome::closed;
    arrivals_.push_back({.kind = PutEvent::Kind::arrived, .peer = sender, .immediate = immediate});
    return Outcome::delivered;
  }
  [[nodiscard]] std::size_t take(std::span<PutEvent> events);
  void close();
  [[nodiscard]] bool closed();

 private:
  std::mutex mutex_;
  std::deque<PutEvent> arrivals_;
  std::vector<std::size_t> waiting_;  // by sender
  std::size_t depth_;
  bool closed_ = false;
};

/// Memory that peers copy into. Its owner takes it back under the exclusive lock, so that no copy outlives it.
struct SharedRegion {
  std::shared_mutex mutex;
  PutMemory memory;  ///< data is null once the owner has gone
};

/// A number under which find_*() gives the object while somebody holds it; null afterwards.
[[nodiscard]] std::uint64_t publish(const std::shared_ptr<Inbox>& inbox);
[[nodiscard]] std::uint64_t publish(const std::shared_ptr<SharedRegion>& region);
[[nodiscard]] std::shared_ptr<Inbox> find_inbox(std::uint64_t id);
[[nodiscard]] std::shared_ptr<SharedRegion> find_region(std::uint64_t id);

}  // namespace moelink::loopback

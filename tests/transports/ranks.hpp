// Ranks as threads of the test, with a rendezvous.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "moelink/error.hpp"
#include "transports/rendezvous.hpp"

namespace moelink::test {

/// Where the threads meet. A rank that leaves for good (an exception) breaks it for the others.
class MeetingPoint {
 public:
  explicit MeetingPoint(int size) : size_(size) {}

  void all_gather(int rank, std::span<const std::byte> mine, std::span<std::byte> all) {
    std::unique_lock lock(mutex_);
    board_.resize(std::max(board_.size(), mine.size() * static_cast<std::size_t>(size_)));
    std::memcpy(board_.data() + mine.size() * static_cast<std::size_t>(rank), mine.data(), mine.size());
    meet(lock);
    std::memcpy(all.data(), board_.data(), all.size());
    meet(lock);  // nobody writes the board before everybody has read it
  }
  void barrier() {
    std::unique_lock lock(mutex_);
    meet(lock);
  }
  void leave() {
    const std::scoped_lock lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

 private:
  void meet(std::unique_lock<std::mutex>& lock) {
    const int round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    // wait_until on the system clock: ThreadSanitizer of g++ 12 does not know the other's system call
    const bool met = changed_.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(30),
                                         [&] { return round_ != round || broken_; });
    if (!met || round_ == round) {
      throw Error(ErrorCode::peer, "a rank of the test did not come to the rendezvous");
    }
  }

  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> board_;
  int arrived_ = 0;
  int round_ = 0;
  bool broken_ = false;
};

class ThreadRendezvous final : public Rendezvous {
 public:
  ThreadRendezvous(MeetingPoint& point, int rank, std::vector<int> nodes)
      : point_(point), rank_(rank), nodes_(std::move(nodes)) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(nodes_.size()); }
  [[nodiscard]] int node_of(int rank) const override { return nodes_[static_cast<std::size_t>(rank)]; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    point_.all_gather(rank_, mine, all);
  }
  void barrier() override { point_.barrier(); }
  void give_up(std::string_view /*words*/) noexcept override {}

 private:
  MeetingPoint& point_;
  int rank_;
  std::vector<int> nodes_;
};

/// Runs `body` as each rank in a thread of its own; returns what() of each rank's exception, empty where there was
/// none.
inline std::vector<std::string> run_ranks(std::vector<int> nodes, const std::function<void(Rendezvous&)>& body) {
  MeetingPoint point(static_cast<int>(nodes.size()));
  std::vector<std::string> failures(nodes.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      ThreadRendezvous rendezvous(point, static_cast<int>(rank), nodes);
      try {
        body(rendezvous);
      } catch (const std::exception& error) {
        failures[rank] = error.what();
        point.leave();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return failures;
}

}  // namespace moelink::test

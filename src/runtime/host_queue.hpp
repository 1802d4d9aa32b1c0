// The host's stream: an in-order queue of tasks, one worker that runs them, and a team of threads that run the blocks
// of a launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "moelink/device/exec/host_exec.hpp"
#include "moelink/stream.hpp"
#include "runtime/block_team.hpp"
#include "runtime/signal.hpp"

namespace moelink {

/// Any thread may enqueue; tasks run one after the other, in order. Enqueuing never blocks on a task and, once the
/// queue has been as long as it gets, allocates nothing (tasks of up to kTaskBytes live in recycled nodes).
///
/// A task that throws does not stop the queue. The first exception is kept and thrown by the next synchronize().
class HostQueue {
 public:
  static constexpr std::size_t kTaskBytes = 1024;

  /// `num_threads` run the blocks of one launch: the worker and num_threads - 1 others. At least 1.
  explicit HostQueue(int num_threads);
  /// Runs what is left, then ends the threads. An exception nobody has asked for is lost.
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  [[nodiscard]] int num_threads() const noexcept { return team_.num_threads(); }

  /// Enqueues `task()`.
  template <class Task>
  void enqueue(Task&& task);

  /// Enqueues `block(const HostExec&)`, to be called once for each of `grid` blocks. Up to num_threads() blocks run at
  /// the same time, each on a thread of its own, so that a barrier over the grid is legal; a larger grid is worked off,
  /// lowest block first. A block has `scratch_bytes` of undefined contents, 128-byte aligned. `block` is copied into
  /// the queue, and is called from several threads at once.
  template <class Block>
  void launch_blocks(int grid, std::size_t scratch_bytes, Block&& block);

  /// Returns when everything enqueued before is done. Throws what a task threw, once. Not legal inside a task.
  void synchronize();

 private:
  struct Node {
    Node* next = nullptr;
    void (*run)(void* task) = nullptr;      ///< calls the task
    void (*destroy)(void* task) = nullptr;  ///< ends its life
    alignas(64) std::byte task[kTaskBytes];
  };
  template <class Task>
  static void construct(Node& node, Task&& task);

  void refuse_forked() const;
  [[nodiscard]] Node* take_node();
  void submit(Node* node);
  void recycle(Node* node) noexcept;
  void work();
  void run(Node& node) noexcept;

  const unsigned forks_;  // of this process, when the threads were started
  BlockTeam team_;
  std::mutex mutex_;       // guards what follows, up to submitted_
  Node* first_ = nullptr;  // waiting tasks, oldest first
  Node* last_ = nullptr;
  Node* free_ = nullptr;  // nodes to use again
  std::uint64_t num_submitted_ = 0;
  std::uint64_t num_completed_ = 0;
  std::exception_ptr exception_;
  bool ending_ = false;
  Signal submitted_;
  std::thread worker_;  // last: starts when all else is ready
};

template <class Task>
void HostQueue::construct(Node& node, Task&& task) {
  using Stored = std::decay_t<Task>;
  if constexpr (sizeof(Stored) <= kTaskBytes && alignof(Stored) <= 64) {
    ::new (static_cast<void*>(node.task)) Stored(std::forward<Task>(task));
    node.run = [](void* stored) { (*static_cast<Stored*>(stored))(); };
    node.destroy = [](void* stored) { static_cast<Stored*>(stored)->~Stored(); };
  } else {
    construct(node, [owned = std::make_unique<Stored>(std::forward<Task>(task))] { (*owned)(); });
  }
}

template <class Task>
void HostQueue::enqueue(Task&& task) {
  refuse_forked();
  Node* node = take_node();
  try {
    construct(*node, std::forward<Task>(task));
  } catch (...) {
    recycle(node);
    throw;
  }
  submit(node);
}

template <class Block>
void HostQueue::launch_blocks(int grid, std::size_t scratch_bytes, Block&& block) {
  BlockTeam::check_shape(grid, scratch_bytes);
  enqueue([this, grid, scratch_bytes, stored = std::decay_t<Block>(std::forward<Block>(block))]() {
    team_.run(grid, scratch_bytes, stored);
  });
}

/// The queue of a host stream. Throws invalid_argument for a view that has none.
[[nodiscard]] HostQueue& queue_of(StreamView stream);

}  // namespace moelink

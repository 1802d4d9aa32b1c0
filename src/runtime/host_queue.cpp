#include "runtime/host_queue.hpp"

#include <pthread.h>

#include <atomic>

#include "moelink/error.hpp"
#include "runtime/thread.hpp"

namespace moelink {
namespace {

std::atomic<unsigned> forks_since_start{0};

/// How often this process is the child of a fork. A child has none of its parent's threads.
unsigned num_forks() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks_since_start.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return forks_since_start.load(std::memory_order_relaxed);
}

}  // namespace

HostQueue::HostQueue(int num_threads)
    : forks_(num_forks()), team_(num_threads), worker_(start_thread("moelink-queue", [this] { work(); })) {}

HostQueue::~HostQueue() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  submitted_.raise();
  worker_.join();
  while (free_ != nullptr) {
    delete std::exchange(free_, free_->next);
  }
}

void HostQueue::refuse_forked() const {
  if (forks_since_start.load(std::memory_order_relaxed) != forks_) {
    throw Error(
        ErrorCode::unsupported,
        "this process was forked after the stream was made, and has none of its threads; make streams and ranks "
        "in the process that uses them");
  }
}

HostQueue::Node* HostQueue::take_node() {
  {
    const std::scoped_lock lock(mutex_);
    if (free_ != nullptr) {
      return std::exchange(free_, free_->next);
    }
  }
  return new Node;
}

void HostQueue::submit(Node* node) {
  node->next = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    (first_ == nullptr ? first_ : last_->next) = node;
    last_ = node;
    ++num_submitted_;
  }
  submitted_.raise();
}

void HostQueue::recycle(Node* node) noexcept {
  const std::scoped_lock lock(mutex_);
  node->next = free_;
  free_ = node;
}

void HostQueue::work() {
  for (;;) {
    // Counted before looking: a task submitted in between changes the count, and the wait below returns at once.
    const std::uint32_t seen = submitted_.count();
    Node* node = nullptr;
    bool ending = false;
    {
      const std::scoped_lock lock(mutex_);
      node = std::exchange(first_, nullptr);
      ending = ending_;
    }
    if (node == nullptr && ending) {
      return;
    }
    if (node == nullptr) {
      submitted_.wait_while(seen);
    }
    while (node != nullptr) {
      Node* next = node->next;
      run(*node);
      node = next;
    }
  }
}

void HostQueue::run(Node& node) noexcept {
  std::exception_ptr exception;
  try {
    node.run(node.task);
  } catch (...) {
    exception = std::current_exception();
  }
  node.destroy(node.task);
  const std::scoped_lock lock(mutex_);
  if (exception_ == nullptr) {
    exception_ = std::move(exception);
  }
  node.next = free_;
  free_ = &node;
  ++num_completed_;
}

void HostQueue::synchronize() {
  refuse_forked();
  if (std::this_thread::get_id() == worker_.get_id()) {
    throw Error(ErrorCode::invalid_argument, "a task synchronised with the stream that runs it, which never ends");
  }
  bool idle = false;
  {
    const std::scoped_lock lock(mutex_);
    idle = num_completed_ == num_submitted_;
  }
  if (!idle) {
    // Shared, because raise() still touches it after the wait has returned.
    auto done = std::make_shared<Signal>();
    enqueue([done] { done->raise(); });
    done->wait_while(0);
  }
  std::exception_ptr exception;
  {
    const std::scoped_lock lock(mutex_);
    exception = std::exchange(exception_, nullptr);
  }
  if (exception != nullptr) {
    std::rethrow_exception(exception);
  }
}

}  // namespace moelink

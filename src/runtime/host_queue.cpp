#include "runtime/host_queue.hpp"

#include "moelink/error.hpp"
#include "runtime/thread.hpp"

namespace moelink {

HostQueue::HostQueue(int num_threads)
    : team_(num_threads), worker_(start_thread("moelink-queue", [this] { work(); })) {}

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

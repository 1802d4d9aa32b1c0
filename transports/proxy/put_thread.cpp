#include "transports/proxy/put_thread.hpp"

#include <algorithm>
#include <utility>

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "runtime/thread.hpp"
#include "transports/pci_path.hpp"
#include "transports/proxy/idle.hpp"
#include "transports/proxy/nearness.hpp"

namespace moelink {
namespace {

/// On the system clock, as ThreadSanitizer of g++ 12 does not know the other's system call.
std::chrono::system_clock::time_point end_of(std::chrono::milliseconds patience) {
  return std::chrono::system_clock::now() + patience;
}

}  // namespace

PutThread::PutThread(std::unique_ptr<PutWork> work, std::string name, bool spins, OnFailure on_failure)
    : name_(std::move(name)), spins_(spins), work_(std::move(work)), on_failure_(std::move(on_failure)) {}

std::shared_ptr<PutThread> PutThread::start(std::unique_ptr<PutWork> work, std::string name, bool spins,
                                            OnFailure on_failure) {
  const PutOptions options = work->options();
  const std::shared_ptr<PutThread> self(new PutThread(std::move(work), std::move(name), spins, std::move(on_failure)));
  self->thread_ = start_thread(text("moelink-put", options.rank), [self] { self->run(); });
  keep_near(self->thread_, pci_path_of(options.device));
  return self;
}

void PutThread::end(std::chrono::milliseconds patience) noexcept {
  stop_.store(true, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  if (changed_.wait_until(lock, end_of(patience), [&] { return has_ended_; })) {
    lock.unlock();
    thread_.join();
    return;
  }
  lock.unlock();
  warn_once(text("the thread that puts for rank ", work_->options().rank, " has not ended within ", to_string(patience),
                 ": it is stuck in ", name_, "; it is left to itself, with the memory that it uses"));
  const std::scoped_lock tell_lock(tell_mutex_);
  on_failure_ = nullptr;
  thread_.detach();
}

void PutThread::call(std::chrono::milliseconds patience, const std::function<void(PutWork&)>& work) {
  Call one{.work = &work};
  std::unique_lock lock(mutex_);
  calls_.push_back(&one);
  has_calls_.store(true, std::memory_order_release);
  // Work that has begun holds the lock: after the wait it is done, or has not begun, and then never will.
  if (!changed_.wait_until(lock, end_of(patience), [&] { return one.is_done; })) {
    std::erase(calls_, &one);
    throw Error(ErrorCode::timeout, text("the thread that puts for rank ", work_->options().rank,
                                         " has not answered for ", to_string(patience), "; it is stuck in ", name_));
  }
  if (one.thrown != nullptr) std::rethrow_exception(one.thrown);
}

void PutThread::part(LeftChannel left) {
  parting_.push_back(std::move(left));
  num_parting_.store(parting_.size(), std::memory_order_release);
}

/// Farewells to channels that were left, and from the remotes.
void PutThread::part_from_peers() {
  const bool is_over = has_failed_.load(std::memory_order_relaxed) || is_abandoned_.load(std::memory_order_acquire);
  std::vector<LeftChannel> parted;
  std::erase_if(parting_, [&](LeftChannel& one) {
    const u32 exchange = one.channel->view().exchange;
    const bool is_complete = !is_over && work_->say_farewells(exchange);
    if (!is_complete && !is_over) return false;
    work_->forget(exchange, is_complete);
    parted.push_back(std::move(one));
    return true;
  });
  {
    const std::scoped_lock lock(left_mutex_);
    std::ranges::move(parted, std::back_inserter(left_));
  }
  num_parting_.store(parting_.size(), std::memory_order_release);
}

std::vector<LeftChannel> PutThread::take_left() {
  const std::scoped_lock lock(left_mutex_);
  return std::exchange(left_, {});
}

void PutThread::check() const {
  if (!has_failed()) return;
  const std::scoped_lock lock(mutex_);
  throw *failure_;
}

void PutThread::run() {
  Idle idle(spins_, work_->options().device.is_host());
  while (!stop_.load(std::memory_order_relaxed)) {
    if (is_helped()) {
      idle.rest();
      continue;
    }
    run_round(idle);
  }
  const std::scoped_lock lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

void PutThread::run_round(Idle& idle) {
  std::unique_lock lock(work_mutex_);
  const bool found_call = serve_calls();
  if (!parting_.empty()) part_from_peers();
  const bool works = !has_failed_.load(std::memory_order_relaxed);
  const bool found_work = works && work();
  const bool under_way = works && work_->is_under_way();
  const bool in_use = work_->has_channels();
  lock.unlock();
  idle.step(found_call || found_work, under_way, in_use);
}

/// Whether threads that wait have done the work since the last look, and there is nothing that this one alone does.
bool PutThread::is_helped() {
  const u64 helps = num_helps_.load(std::memory_order_relaxed);
  const bool is_mine = has_calls_.load(std::memory_order_acquire) || is_parting();
  return std::exchange(num_helps_seen_, helps) != helps && !is_mine;
}

PutHelper PutThread::helper() noexcept {
  if (spins_) return {};
  return {.help =
              [](void* thread) {
                auto& self = *static_cast<PutThread*>(thread);
                const std::unique_lock lock(self.work_mutex_, std::try_to_lock);
                if (!lock.owns_lock() || self.has_failed_.load(std::memory_order_relaxed)) return false;
                self.num_helps_.fetch_add(1, std::memory_order_relaxed);
                return self.work();
              },
          .proxy = this};
}

bool PutThread::serve_calls() {
  if (!has_calls_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock lock(mutex_);
  for (Call* one : calls_) {
    try {
      (*one->work)(*work_);
    } catch (...) {
      one->thrown = std::current_exception();
    }
    one->is_done = true;
  }
  calls_.clear();
  has_calls_.store(false, std::memory_order_relaxed);
  changed_.notify_all();
  return true;
}

bool PutThread::work() {
  try {
    return work_->round();
  } catch (const PutFailure& failure) {
    fail(failure);
  } catch (const std::exception& error) {
    fail(PutFailure(-1, text("puts of rank ", work_->options().rank, " failed: ", error.what())));
  }
  return true;
}

void PutThread::fail(const PutFailure& failure) {
  {
    const std::scoped_lock lock(mutex_);
    failure_.emplace(failure);
  }
  has_failed_.store(true, std::memory_order_release);
  const std::scoped_lock lock(tell_mutex_);
  if (on_failure_) on_failure_(failure.peer(), failure.sentence());
}

}  // namespace moelink

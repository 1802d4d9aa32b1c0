#include "comm/thread_bootstrap.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "comm/round.hpp"

namespace moelink {
namespace {

using Parts = std::shared_ptr<const std::vector<Bytes>>;

/// Unlike std::thread::id, never given to a second thread.
std::uint64_t this_thread_number() {
  static std::atomic<std::uint64_t> next{0};
  thread_local const std::uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

/// What the ranks share. A round ends when the last rank arrives; the next one cannot end before every rank has taken
/// this one's parts, since it needs them all to come back.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : size_(size), creator_(this_thread_number()), round_(size) {}

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] FaultBoard& faults() noexcept { return faults_; }

  Parts all_gather(int rank, std::string_view what, std::span<const std::byte> mine,
                   std::chrono::milliseconds deadline) {
    std::unique_lock lock(mutex_);
    faults_.check();
    refuse_creator(rank, what);
    raise_and_throw(round_.enter(rank, what, Bytes(mine.begin(), mine.end()), deadline));
    if (round_.complete()) {
      parts_ = std::make_shared<std::vector<Bytes>>(round_.finish());
      ++num_finished_;
      woken_.notify_all();
      return parts_;
    }
    const std::uint64_t before = num_finished_;
    const auto done = [&] { return num_finished_ != before || faults_.raised(); };
    if (!woken_.wait_until(lock, round_.deadline().when(), done)) {
      raise_and_throw(round_.expired());
    }
    if (num_finished_ == before) {
      faults_.check();
    }
    return parts_;
  }

  void abort(GroupFault fault) noexcept {
    const std::scoped_lock lock(mutex_);
    raise(std::move(fault));
  }

  void set_away(int rank, std::string why) noexcept {
    const std::scoped_lock lock(mutex_);
    if (auto fault = round_.set_away(rank, std::move(why))) {
      raise(std::move(*fault));
    }
  }

 private:
  void raise(GroupFault fault) noexcept {
    faults_.raise(std::move(fault));
    woken_.notify_all();
  }

  void raise_and_throw(std::optional<GroupFault> fault) {
    if (fault) {
      raise(std::move(*fault));
      faults_.check();
    }
  }

  void refuse_creator(int rank, std::string_view what) {
    if (size_ > 1 && this_thread_number() == creator_) {
      raise_and_throw(GroupFault{
          ErrorCode::out_of_order, rank,
          text("'", what, "' on rank ", rank,
               " was called by the thread that made the in-process ranks; it would wait forever for ranks that come "
               "later in the same loop: give each rank a thread, as on_every_rank() does")});
    }
  }

  const int size_;
  const std::uint64_t creator_;
  FaultBoard faults_;
  std::mutex mutex_;
  std::condition_variable woken_;
  Round round_;
  std::uint64_t num_finished_ = 0;
  Parts parts_;  // of the last round that finished
};

ThreadBootstrap::ThreadBootstrap(int rank, std::shared_ptr<ThreadGroup> group)
    : rank_(rank), group_(std::move(group)) {}

ThreadBootstrap::~ThreadBootstrap() { group_->set_away(rank_, "it has left (its communicator was destroyed)"); }

std::vector<std::unique_ptr<ThreadBootstrap>> ThreadBootstrap::make_group(int size) {
  auto group = std::make_shared<ThreadGroup>(size);
  std::vector<std::unique_ptr<ThreadBootstrap>> members;
  members.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    members.push_back(std::unique_ptr<ThreadBootstrap>(new ThreadBootstrap(rank, group)));
  }
  return members;
}

int ThreadBootstrap::size() const noexcept { return group_->size(); }

std::vector<Bytes> ThreadBootstrap::all_gather(std::string_view what, std::span<const std::byte> mine,
                                               std::chrono::milliseconds deadline) {
  check_contribution(*this, what, mine.size());
  return *group_->all_gather(rank_, what, mine, deadline);
}

void ThreadBootstrap::abort(GroupFault fault) noexcept { group_->abort(std::move(fault)); }
FaultBoard& ThreadBootstrap::faults() noexcept { return group_->faults(); }
void ThreadBootstrap::stay_away(const std::string& why) noexcept { group_->set_away(rank_, why); }
void ThreadBootstrap::attend() noexcept { group_->set_away(rank_, ""); }

}  // namespace moelink

#include "comm/thread_bootstrap.hpp"
#include "base/text.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

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
  explicit ThreadGroup(int size)
      : creator_(this_thread_number()),
        contributions_(static_cast<std::size_t>(size)),
        arrived_(static_cast<std::size_t>(size), false),
        why_away_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] int size() const noexcept { return static_cast<int>(contributions_.size()); }
  [[nodiscard]] FaultBoard& faults() noexcept { return faults_; }

  Parts all_gather(int rank, std::string_view what, std::span<const std::byte> mine,
                   std::chrono::milliseconds deadline) {
    const Deadline until = Deadline::after(deadline);
    std::unique_lock lock(mutex_);
    faults_.check();
    refuse_creator(rank, what);
    enter(rank, what, mine);
    if (num_arrived_ == size()) {
      finish_round();
      return parts_;
    }
    const std::uint64_t round = round_;
    const auto done = [&] { return round_ != round || faults_.raised(); };
    if (!woken_.wait_until(lock, until.when(), done)) {
      raise({ErrorCode::timeout, missing().front(),
             text("'", what, "': ", describe_ranks(missing()), " of ", size(), " did not arrive within ",
                  to_string(deadline))});
    }
    if (round_ == round) {
      faults_.check();
    }
    return parts_;
  }

  void abort(GroupFault fault) noexcept {
    const std::scoped_lock lock(mutex_);
    raise(std::move(fault));
  }

  /// An empty reason means that the rank takes part.
  void set_away(int rank, std::string why) noexcept {
    const std::scoped_lock lock(mutex_);
    const std::string& kept = why_away_[static_cast<std::size_t>(rank)] = std::move(why);
    if (!kept.empty() && num_arrived_ > 0) {
      raise_away(rank);
    }
  }

 private:
  void raise(GroupFault fault) noexcept {
    faults_.raise(std::move(fault));
    woken_.notify_all();
  }

  void raise_away(int rank) noexcept {
    raise({ErrorCode::peer, rank,
           text("rank ", rank, " cannot take part in '", what_, "': ", why_away_[static_cast<std::size_t>(rank)])});
  }

  void refuse_creator(int rank, std::string_view what) {
    if (size() > 1 && this_thread_number() == creator_) {
      raise(
          {ErrorCode::out_of_order, rank,
           text(
               "'", what, "' on rank ", rank,
               " was called by the thread that made the in-process ranks; it would wait for the other ranks forever if "
               "they came later in the same loop: give each rank a thread, as on_every_rank() does")});
      faults_.check();
    }
  }

  void enter(int rank, std::string_view what, std::span<const std::byte> mine) {
    if (num_arrived_ == 0) {
      what_ = what;
      first_ = rank;
    }
    const auto index = static_cast<std::size_t>(rank);
    if (what_ != what) {
      raise({ErrorCode::mismatch, rank,
             text("rank ", first_, " is in '", what_, "' while rank ", rank, " is in '", what,
                  "'; every rank must make the same calls in the same order")});
    } else if (arrived_[index]) {
      raise({ErrorCode::out_of_order, rank,
             text("two threads are in '", what, "' of rank ", rank, " at once; one thread at a time may")});
    }
    for (std::size_t r = 0; r < why_away_.size(); ++r) {
      if (!why_away_[r].empty()) {
        raise_away(static_cast<int>(r));
      }
    }
    faults_.check();
    contributions_[index].assign(mine.begin(), mine.end());
    arrived_[index] = true;
    ++num_arrived_;
  }

  void finish_round() {
    const std::size_t num_ranks = contributions_.size();
    parts_ = std::make_shared<std::vector<Bytes>>(std::exchange(contributions_, std::vector<Bytes>(num_ranks)));
    arrived_.assign(num_ranks, false);
    num_arrived_ = 0;
    ++round_;
    woken_.notify_all();
  }

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < arrived_.size(); ++r) {
      if (!arrived_[r]) {
        ranks.push_back(static_cast<int>(r));
      }
    }
    return ranks;
  }

  const std::uint64_t creator_;
  FaultBoard faults_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::uint64_t round_ = 0;
  std::string what_;  // of the round that is open
  int first_ = 0;     // who opened it
  int num_arrived_ = 0;
  std::vector<Bytes> contributions_;
  std::vector<bool> arrived_;
  std::vector<std::string> why_away_;  // empty: present
  Parts parts_;                        // of the last round that ended
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

// How a launch runs:
//
// 1. The owner writes job_ and launch_, then publishes them by storing the grid into num_untaken_ (release).
// 2. It wakes members 1 and 2, which wake 3 to 6, and so on: as many as there are blocks.
// 3. Everybody takes blocks by decrementing num_untaken_ (acquire) until it is zero. Who holds a block may read job_:
//    the owner does not return before that block is done. Who was late finds nothing to take, or a block of the next
//    launch. Blocks are handed out, not assigned: while members wake up, those awake go on. A grid of up to
//    num_threads() blocks still gets one thread each if its blocks wait for each other, because a thread that waits
//    takes no second block.
// 4. Whoever finishes the last block (num_unfinished_ becomes zero; acquire-release) tells the owner.
//
// A member that was late and got a block of the next launch has woken its children for the last one only. They may be
// asleep again, and the block may wait for theirs: so it wakes them again before it runs the block.
#include "runtime/block_team.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "moelink/error.hpp"
#include "runtime/thread.hpp"

namespace moelink {
namespace {

constexpr std::size_t kInitialScratchBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxScratchBytes = std::size_t{1} << 30;
constexpr std::size_t kScratchAlignment = 128;

}  // namespace

void BlockTeam::FreeDeleter::operator()(void* memory) const noexcept { std::free(memory); }

BlockTeam::BlockTeam(int num_threads) : members_(static_cast<std::size_t>(std::max(num_threads, 1))) {
  reserve_scratch(kInitialScratchBytes);
  try {
    for (int i = 1; i < this->num_threads(); ++i) {
      members_[static_cast<std::size_t>(i)].thread =
          start_thread("moelink-block" + std::to_string(i), [this, i] { work_as(i); });
    }
  } catch (...) {
    end();
    throw;
  }
}

BlockTeam::~BlockTeam() { end(); }

void BlockTeam::end() noexcept {
  ending_.store(true, std::memory_order_relaxed);
  for (Member& member : members_) {
    member.wake.raise();
    if (member.thread.joinable()) {
      member.thread.join();
    }
  }
}

void BlockTeam::check_shape(int grid, std::size_t scratch_bytes) {
  if (grid < 1) {
    throw Error(ErrorCode::invalid_argument, "a launch of " + std::to_string(grid) + " blocks; it needs at least one");
  }
  if (scratch_bytes > kMaxScratchBytes) {
    throw Error(ErrorCode::invalid_argument, "a launch with " + std::to_string(scratch_bytes) +
                                                 " bytes of scratch per block; at most " +
                                                 std::to_string(kMaxScratchBytes) + " are possible");
  }
}

void BlockTeam::reserve_scratch(std::size_t scratch_bytes) {
  if (scratch_bytes <= scratch_bytes_) {
    return;
  }
  const std::size_t bytes = (scratch_bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  for (Member& member : members_) {
    std::unique_ptr<void, FreeDeleter> grown(std::aligned_alloc(kScratchAlignment, bytes));
    if (grown == nullptr) {
      throw Error(ErrorCode::capacity, "no memory for " + std::to_string(bytes) + " bytes of scratch on each of " +
                                           std::to_string(num_threads()) + " threads");
    }
    member.scratch = std::move(grown);
  }
  scratch_bytes_ = bytes;
}

void BlockTeam::run_job(const Job& job, std::size_t scratch_bytes) {
  check_shape(job.grid, scratch_bytes);
  reserve_scratch(scratch_bytes);
  const int participants = std::min(job.grid, num_threads());
  if (participants == 1) {
    for (int i = 0; i < job.grid; ++i) {
      run_block(job, i, 0);
    }
  } else {
    const std::uint32_t seen = done_.count();
    job_ = job;
    job_.number = launch_.load(std::memory_order_relaxed).number + 1;
    launch_.store({.number = job_.number, .participants = participants}, std::memory_order_relaxed);
    num_unfinished_.store(job.grid, std::memory_order_relaxed);
    num_untaken_.store(job.grid, std::memory_order_release);
    take_blocks(0, wake_children(0));
    done_.wait_while(seen);
  }
  if (exception_ != nullptr) {
    std::rethrow_exception(std::exchange(exception_, nullptr));
  }
}

std::uint32_t BlockTeam::wake_children(int member) noexcept {
  // A member that is late may read a later launch: then it wakes that one's children, a little early.
  const Launch launch = launch_.load(std::memory_order_relaxed);
  const int end = std::min(2 * member + 3, launch.participants);
  for (int child = 2 * member + 1; child < end; ++child) {
    members_[static_cast<std::size_t>(child)].wake.raise();
  }
  return launch.number;
}

void BlockTeam::work_as(int member) noexcept {
  Signal& wake = members_[static_cast<std::size_t>(member)].wake;
  for (std::uint32_t seen = 0; !ending_.load(std::memory_order_relaxed);) {
    wake.wait_while(seen);
    seen = wake.count();
    take_blocks(member, wake_children(member));
  }
}

bool BlockTeam::take_ticket(int& num_left) noexcept {
  num_left = num_untaken_.load(std::memory_order_relaxed);
  while (num_left > 0) {
    if (num_untaken_.compare_exchange_weak(num_left, num_left - 1, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void BlockTeam::take_blocks(int member, std::uint32_t woken_for) noexcept {
  for (int num_left = 0; take_ticket(num_left);) {
    if (woken_for != job_.number) {
      woken_for = wake_children(member);
    }
    run_block(job_, job_.grid - num_left, member);
    if (num_unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      done_.raise();
    }
  }
}

void BlockTeam::run_block(const Job& job, int index, int member) noexcept {
  try {
    job.block(job.stored, HostExec(index, job.grid, members_[static_cast<std::size_t>(member)].scratch.get()));
  } catch (...) {
    const std::scoped_lock lock(exception_mutex_);
    if (exception_ == nullptr) {
      exception_ = std::current_exception();
    }
  }
}

}  // namespace moelink

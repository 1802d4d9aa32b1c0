#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "comm/communicator_state.hpp"
#include "comm/run_threads.hpp"
#include "comm/thread_bootstrap.hpp"
#include "moelink/communicator.hpp"
#include "moelink/error.hpp"

namespace moelink {

namespace {

/// The first exception of several threads, by time.
class FirstException {
 public:
  void keep(std::exception_ptr exception) {
    const std::scoped_lock lock(mutex_);
    if (!first_) first_ = std::move(exception);
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

/// No thread runs before every thread is there: ranks would wait for one that never comes.
enum class Start { wait, go, cancel };

}  // namespace

void run_threads(std::size_t count, const std::function<void(std::size_t)>& run) {
  FirstException first;
  std::atomic<Start> start{Start::wait};
  const auto body = [&](std::size_t i) {
    start.wait(Start::wait);
    if (start == Start::cancel) return;
    try {
      run(i);
    } catch (...) {
      first.keep(std::current_exception());
    }
  };
  const auto release = [&](Start how) {
    start = how;
    start.notify_all();
  };
  std::vector<std::jthread> threads;
  try {
    threads.reserve(count);
    while (threads.size() < count) {
      threads.emplace_back(body, threads.size());
    }
  } catch (const std::system_error& error) {
    release(Start::cancel);
    throw Error(ErrorCode::system, text("thread ", threads.size() + 1, " of ", count,
                                        ", one for each rank, could not be started: ", error.code().message(),
                                        "; use fewer ranks, or raise the limit on threads or memory"));
  } catch (...) {
    release(Start::cancel);
    throw;
  }
  release(Start::go);
  threads.clear();  // joins
  first.rethrow();
}

namespace {

/// Releases the ranks that wait for `rank`, or will, with what made it fail.
void release_waiters(const Communicator& rank, const std::string& why) noexcept {
  Bootstrap& bootstrap = *rank.state().bootstrap;
  if (auto* threads = dynamic_cast<ThreadBootstrap*>(&bootstrap); threads != nullptr) {
    threads->stay_away(why);
  } else {
    bootstrap.abort({ErrorCode::peer, rank.rank(), text("rank ", rank.rank(), " failed: ", why)});
  }
}

void return_to_group(const Communicator& rank) noexcept {
  if (auto* threads = dynamic_cast<ThreadBootstrap*>(rank.state().bootstrap.get()); threads != nullptr) {
    threads->attend();
  }
}

}  // namespace

namespace detail {

void run_on_every_rank(std::span<const Communicator> ranks, const std::function<void(std::size_t)>& run) {
  const auto return_all = [&] {
    for (const Communicator& rank : ranks) {
      return_to_group(rank);
    }
  };
  FirstException first;  // kept before others are released: what they throw then follows from it
  try {
    run_threads(ranks.size(), [&](std::size_t i) {
      try {
        run(i);
      } catch (const std::exception& error) {
        first.keep(std::current_exception());
        release_waiters(ranks[i], text("it failed: ", error.what()));
      } catch (...) {
        first.keep(std::current_exception());
        release_waiters(ranks[i], "it failed with an exception of unknown type");
      }
    });
    first.rethrow();
  } catch (...) {
    return_all();
    throw;
  }
  return_all();
}

}  // namespace detail
}  // namespace moelink

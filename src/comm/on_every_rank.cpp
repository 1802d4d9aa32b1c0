#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/text.hpp"
#include "comm/communicator_state.hpp"
#include "comm/run_threads.hpp"
#include "comm/thread_bootstrap.hpp"
#include "moelink/communicator.hpp"

namespace moelink {

void run_threads(std::size_t count, const std::function<void(std::size_t)>& run) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::jthread> threads;
  threads.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        run(i);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!first) {
          first = std::current_exception();
        }
      }
    });
  }
  threads.clear();  // joins
  if (first) {
    std::rethrow_exception(first);
  }
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
  try {
    run_threads(ranks.size(), [&](std::size_t i) {
      try {
        run(i);
      } catch (const std::exception& error) {
        release_waiters(ranks[i], text("it failed: ", error.what()));
        throw;
      } catch (...) {
        release_waiters(ranks[i], "it failed with an exception of unknown type");
        throw;
      }
    });
  } catch (...) {
    return_all();
    throw;
  }
  return_all();
}

}  // namespace detail
}  // namespace moelink

#include "perf/common/team.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace moelink::perf {

Team::Team(int num_threads) {
  const int threads =
      num_threads > 0 ? num_threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { work_until_stopped(thread); });
  }
}

Team::~Team() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void Team::work_until_stopped(int thread) {
  std::uint64_t seen = 0;
  while (true) {
    const std::function<void(int)>* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      work = work_;
    }
    (*work)(thread);
    const std::scoped_lock lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
  }
}

void Team::run(const std::function<void(int)>& work) {
  {
    const std::scoped_lock lock(mutex_);
    work_ = &work;
    busy_ = static_cast<int>(workers_.size());
    ++round_;
  }
  wake_.notify_all();
  work(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void Team::for_ranges(std::int64_t count, std::int64_t grain,
                      const std::function<void(std::int64_t, std::int64_t)>& work) {
  std::atomic<std::int64_t> next{0};
  run([&](int) {
    for (std::int64_t begin = next.fetch_add(grain); begin < count; begin = next.fetch_add(grain)) {
      work(begin, std::min(begin + grain, count));
    }
  });
}

void Team::copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes < 2 * kSmallestShareBytes) {
    if (bytes != 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));  // of no bytes, pointers may be null
    return;
  }
  run([&](int thread) {
    const std::int64_t begin = bytes * thread / size();
    const std::int64_t end = bytes * (thread + 1) / size();
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

}  // namespace moelink::perf

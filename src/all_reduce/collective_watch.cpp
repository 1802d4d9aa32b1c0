#include "all_reduce/collective_watch.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "runtime/thread.hpp"

namespace moelink {

CollectiveWatch::CollectiveWatch(Duties duties)
    : duties_(std::move(duties)), thread_(start_thread("moelink-watch", [this] { run(); })) {}

CollectiveWatch::~CollectiveWatch() {
  leaving_.store(true, std::memory_order_release);
  wakeup_.wake();
  thread_.join();
}

void CollectiveWatch::group_failed() noexcept {
  group_failed_.store(true, std::memory_order_release);
  wakeup_.wake();
}

void CollectiveWatch::run() {
  const auto period = std::clamp(duties_.deadline / 20, std::chrono::milliseconds(1), std::chrono::milliseconds(500));
  bool has_reported = false;
  while (!leaving_.load(std::memory_order_acquire)) {
    pollfd waiting{.fd = wakeup_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, static_cast<int>(period.count()));
    wakeup_.reset();
    if (group_failed_.load(std::memory_order_acquire)) {
      duties_.abort();
      return;
    }
    const std::chrono::milliseconds running = has_reported ? std::chrono::milliseconds(0) : duties_.longest_running();
    if (running > duties_.deadline) {
      has_reported = true;
      duties_.report_late(running);
    }
  }
}

}  // namespace moelink

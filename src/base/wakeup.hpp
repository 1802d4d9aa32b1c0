// Wakes a thread that waits in poll().
#pragma once

#include <sys/eventfd.h>

#include <cstdint>

#include "base/system_error.hpp"
#include "base/unique_fd.hpp"

namespace moelink {

class Wakeup {
 public:
  Wakeup() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!fd_) {
      throw system_error("eventfd()");
    }
  }

  /// Readable from wake() to reset().
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// From any thread.
  void wake() const noexcept {
    const std::uint64_t one = 1;
    // Fails only if the counter is full, and then the thread is being woken anyway.
    [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
  }
  void reset() const noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t read = ::read(fd_.get(), &count, sizeof count);
  }

 private:
  UniqueFd fd_;
};

}  // namespace moelink

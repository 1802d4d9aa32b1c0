// The host's executor, with pauses: blocks start late, and stop for a while wherever the algorithm asks its executor for
// something: at every block barrier, so before every flag and after every wait, and between the turns of loops.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

#include "moelink/device/exec/host_exec.hpp"

namespace moelink::test {

/// How often a block pauses: once in so many calls; 0: never.
struct Pauses {
  unsigned at_entry = 0;
  unsigned at_barriers = 0;
  unsigned elsewhere = 0;
  int most_us = 200;
};

class PausingExec : public HostExec {
 public:
  PausingExec(const HostExec& ex, const Pauses& pauses, unsigned seed)
      : HostExec(ex), pauses_(pauses), random_(seed * 2654435761U + static_cast<unsigned>(ex.block()) * 40503U + 1) {
    pause(pauses_.at_entry);
  }

  int thread() const {
    pause(pauses_.elsewhere);
    return HostExec::thread();
  }
  int num_threads() const {
    pause(pauses_.elsewhere);
    return HostExec::num_threads();
  }
  void sync_block() const { pause(pauses_.at_barriers); }
  bool sync_block_or(bool value) const {
    pause(pauses_.at_barriers);
    return value;
  }

 private:
  unsigned next() const {
    random_ ^= random_ << 13U;
    random_ ^= random_ >> 17U;
    random_ ^= random_ << 5U;
    return random_;
  }
  void pause(unsigned one_in) const {
    if (one_in == 0 || next() % one_in != 0) return;
    if (next() % 4 != 0) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(next() % static_cast<unsigned>(pauses_.most_us + 1)));
    }
  }

  Pauses pauses_;
  mutable unsigned random_;
};

}  // namespace moelink::test

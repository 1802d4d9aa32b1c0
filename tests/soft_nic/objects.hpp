// What stands behind the handles that a soft NIC gives out. All of it is guarded by the fabric's mutex.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "soft_nic/mischief.hpp"

namespace moelink::soft_nic {

using Clock = std::chrono::steady_clock;

/// The handle comes first: a pointer to one is a pointer to the other.
struct Context {
  ibv_context handle{};
  Mischief mischief;
  std::mt19937_64 random;
  std::deque<ibv_async_event> events;  // async_fd counts them
  std::int64_t num_writes = 0;

  /// Now, or up to delay_us later.
  [[nodiscard]] Clock::time_point soon() {
    if (mischief.delay_us == 0) return Clock::now();
    return Clock::now() + std::chrono::microseconds(random() % static_cast<std::uint64_t>(mischief.delay_us + 1));
  }
};

struct Domain {
  ibv_pd handle{};
};

struct Region {
  ibv_mr handle{};
  int access = 0;
};

struct Queue {  // of completions
  ibv_cq handle{};
  std::deque<ibv_wc> entries;
  bool overrun = false;
};

/// A write from the call that posted it until its completion.
struct Write {
  std::uint64_t wr_id = 0;
  std::uint64_t source = 0;
  std::uint32_t size_bytes = 0;
  std::uint32_t lkey = 0;
  std::uint64_t target = 0;
  std::uint32_t rkey = 0;
  std::uint32_t immediate = 0;  ///< as the caller gave it: network order
  Clock::time_point due;
};

struct Pair {  // of queues
  ibv_qp handle{};
  ibv_qp_cap cap{};
  std::uint32_t peer_nic = 0;
  std::uint32_t peer_pair = 0;
  bool is_stuck = false;  // on a write that is lost and lost again: later ones wait behind it
  bool retries_for_ever = false;
  std::deque<Write> to_send;
  std::map<std::uint64_t, Write> in_flight;  // by number
  std::deque<std::uint64_t> receives;        // wr_id
  std::uint32_t sends_unpolled = 0;          // posted, and their completion not taken out: what the queue holds
  std::uint32_t receives_unpolled = 0;
};

inline Context& context_of(ibv_context* handle) { return *reinterpret_cast<Context*>(handle); }
inline Domain& domain_of(ibv_pd* handle) { return *reinterpret_cast<Domain*>(handle); }
inline Region& region_of(ibv_mr* handle) { return *reinterpret_cast<Region*>(handle); }
inline Queue& queue_of(ibv_cq* handle) { return *reinterpret_cast<Queue*>(handle); }
inline Pair& pair_of(ibv_qp* handle) { return *reinterpret_cast<Pair*>(handle); }
inline Context& context_of(const Pair& pair) { return context_of(pair.handle.context); }

}  // namespace moelink::soft_nic

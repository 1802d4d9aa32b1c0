// A release whose fence runs ahead of its stores.
#pragma once

#include "moelink/device/ptx/load_store.cuh"

namespace moelink {

/// Stores through it release, at system scope, whatever was done and observed before it was made. On a GPU the fence,
/// which takes its time, is where it is made: early, while loads are under way. On the host the stores themselves are
/// releases, which covers more.
class EarlyRelease {
 public:
  MOELINK_DEVICE EarlyRelease() : EarlyRelease(true) {}
  /// `stores`: false if this thread turns out to store nothing, and needs no fence.
  MOELINK_DEVICE explicit EarlyRelease(bool stores) {
#if MOELINK_ON_DEVICE
    if (stores) asm volatile("fence.acq_rel.sys;" ::: "memory");
#else
    (void)stores;
#endif
  }

  /// One word.
  MOELINK_DEVICE void store(u64* address, u64 value) const {
#if MOELINK_ON_DEVICE
    st_relaxed_sys(address, value);
#else
    st_release_sys(address, value);
#endif
  }

  /// Two words, each atomic on its own: what ld_acquire_sys_pair reads.
  MOELINK_DEVICE void store_pair(WordPair* address, WordPair value) const {
#if MOELINK_ON_DEVICE
    st_relaxed_sys_pair(address, value);
#else
    atomic_word(&address->first).store(value.first, std::memory_order_release);
    atomic_word(&address->second).store(value.second, std::memory_order_release);
#endif
  }
};

}  // namespace moelink

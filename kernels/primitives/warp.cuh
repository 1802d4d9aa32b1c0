// Sums over the lanes of a warp and the threads of a block. Every lane (thread) of the group calls, in one branch. On
// the host a warp has one lane and a block one thread, so that a sum is the value itself.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// The sum over the warp, in every lane.
template <class Exec>
MOELINK_DEVICE u32 warp_sum(const Exec&, u32 value) {
#if MOELINK_ON_DEVICE
  return __reduce_add_sync(0xffffffffu, value);
#else
  return value;
#endif
}

/// The largest over the warp, in every lane.
template <class Exec>
MOELINK_DEVICE u32 warp_max(const Exec&, u32 value) {
#if MOELINK_ON_DEVICE
  return __reduce_max_sync(0xffffffffu, value);
#else
  return value;
#endif
}

/// The sum over the lanes before this one.
template <class Exec>
MOELINK_DEVICE u32 warp_exclusive_sum(const Exec& ex, u32 value) {
#if MOELINK_ON_DEVICE
  u32 inclusive = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const u32 below = __shfl_up_sync(0xffffffffu, inclusive, step);
    if (ex.lane() >= step) inclusive += below;
  }
  return inclusive - value;
#else
  (void)ex;
  (void)value;
  return 0;
#endif
}

/// A value that all lanes have, as one that the compiler knows to be the same: in a uniform register, where it has them
/// and lacks others.
MOELINK_DEVICE u64 warp_uniform(u64 value) {
#if MOELINK_ON_DEVICE
  const u32 low = __reduce_or_sync(0xffffffffu, static_cast<u32>(value));
  return static_cast<u64>(__reduce_or_sync(0xffffffffu, static_cast<u32>(value >> 32))) << 32 | low;
#else
  return value;
#endif
}

/// The value of one lane, in every lane.
template <class Exec>
MOELINK_DEVICE u32 warp_broadcast(const Exec&, u32 value, int from_lane) {
#if MOELINK_ON_DEVICE
  return __shfl_sync(0xffffffffu, value, from_lane);
#else
  (void)from_lane;
  return value;
#endif
}

/// The sum over the threads of the block before this one. `warp_sums`: 32 words of scratch, free again after the next
/// block barrier.
template <class Exec>
MOELINK_DEVICE u32 block_exclusive_sum(const Exec& ex, u32 value, u32* warp_sums) {
#if MOELINK_ON_DEVICE
  const u32 below_in_warp = warp_exclusive_sum(ex, value);
  if (ex.lane() == 31) warp_sums[ex.warp()] = below_in_warp + value;
  ex.sync_block();
  const u32 below_warps = warp_sum(ex, ex.lane() < ex.warp() ? warp_sums[ex.lane()] : 0);
  return below_warps + below_in_warp;
#else
  (void)ex;
  (void)value;
  (void)warp_sums;
  return 0;
#endif
}

/// Adds to a counter in block scratch that other threads of the block add to as well.
template <class Exec>
MOELINK_DEVICE void scratch_add(const Exec&, u32* counter, u32 value) {
#if MOELINK_ON_DEVICE
  atomicAdd(counter, value);
#else
  *counter += value;
#endif
}

/// Sets bits of a word in block scratch that other threads of the block set bits of as well.
template <class Exec>
MOELINK_DEVICE void scratch_or(const Exec&, u32* word, u32 bits) {
#if MOELINK_ON_DEVICE
  atomicOr(word, bits);
#else
  *word |= bits;
#endif
}

/// By the block: zeroes `count` words of block scratch, which is 16-byte aligned and writable to a multiple of 16
/// bytes.
template <class Exec>
MOELINK_DEVICE void clear_words(const Exec& ex, u32* words, int count) {
  Vec16* vectors = reinterpret_cast<Vec16*>(words);
  for (int i = ex.thread(); i < (count + 3) / 4; i += ex.num_threads()) vectors[i] = Vec16{0, 0, 0, 0};
}

/// The largest n with 2^n <= value; value > 0.
MOELINK_DEVICE int floor_log2(u32 value) {
#if MOELINK_ON_DEVICE
  return 31 - __clz(static_cast<int>(value));
#else
  return 31 - __builtin_clz(value);
#endif
}

}  // namespace moelink

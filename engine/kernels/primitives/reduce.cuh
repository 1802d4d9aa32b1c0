// Sums and maxima of floats over the lanes of a warp and the threads of a block, in a fixed order. All lanes (threads)
// call, in one branch. On the host a warp has one lane and a block one thread: the value itself.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink::engine {

/// The sum over groups of `kLanes` neighbouring lanes (a power of two), in every lane of the group.
template <int kLanes, class Exec>
MOELINK_DEVICE float group_sum(const Exec&, float value) {
#if MOELINK_ON_DEVICE
  MOELINK_UNROLL
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
#endif
  return value;
}

template <class Exec>
MOELINK_DEVICE float warp_sum(const Exec& ex, float value) {
  return group_sum<Exec::kWarpSize>(ex, value);
}

template <class Exec>
MOELINK_DEVICE float warp_max(const Exec&, float value) {
#if MOELINK_ON_DEVICE
  MOELINK_UNROLL
  for (int step = 16; step > 0; step /= 2) value = max_of(value, __shfl_xor_sync(0xffffffffu, value, step));
#endif
  return value;
}

/// The sum over the block, in every thread. Uses the first 128 bytes of the block's scratch, which nobody else may use
/// between the barriers before and after.
template <class Exec>
MOELINK_DEVICE float block_sum(const Exec& ex, float value) {
#if MOELINK_ON_DEVICE
  float* sums = static_cast<float*>(ex.scratch());
  const float in_warp = warp_sum(ex, value);
  ex.sync_block();
  if (ex.lane() == 0) sums[ex.warp()] = in_warp;
  ex.sync_block();
  return warp_sum(ex, ex.lane() < ex.num_warps() ? sums[ex.lane()] : 0.0F);
#else
  (void)ex;
  return value;
#endif
}

/// An index and how good it is; the better of two, the lower index if they are equally good.
struct Scored {
  float score = 0;
  i32 index = 0;
};
MOELINK_DEVICE bool better(const Scored& a, const Scored& b) {
  return a.score > b.score || (a.score == b.score && a.index < b.index);
}

template <class Exec>
MOELINK_DEVICE Scored warp_best(const Exec&, Scored value) {
#if MOELINK_ON_DEVICE
  MOELINK_UNROLL
  for (int step = 16; step > 0; step /= 2) {
    const Scored other{__shfl_xor_sync(0xffffffffu, value.score, step),
                       __shfl_xor_sync(0xffffffffu, value.index, step)};
    if (better(other, value)) value = other;
  }
#endif
  return value;
}

}  // namespace moelink::engine

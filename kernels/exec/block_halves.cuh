// A block of two halves, which do different things until the whole block meets.
#pragma once

#include "moelink/protocol/types.hpp"
#if MOELINK_ON_DEVICE
#include "moelink/device/exec/device_exec.cuh"
#include "moelink/device/exec/spec.cuh"
#endif

namespace moelink {

#if MOELINK_ON_DEVICE

/// The executor of one half: `kThreads` of the block's threads, a multiple of 32, from kHalf * kThreads on. Its block
/// barrier is the half's own.
template <int kHalf, int kThreads>
class HalfExec : public DeviceExec {
 public:
  static_assert(kThreads % kWarpSize == 0, "half a block is whole warps");

  /// Whether the calling thread is of this half.
  MOELINK_DEVICE static bool is_this() { return static_cast<int>(threadIdx.x) / kThreads == kHalf; }

  MOELINK_DEVICE int thread() const {
    const int thread = static_cast<int>(threadIdx.x) - kHalf * kThreads;
    __builtin_assume(thread >= 0 && thread < kThreads);
    return thread;
  }
  MOELINK_DEVICE constexpr int num_threads() const { return kThreads; }
  MOELINK_DEVICE int warp() const { return thread() / kWarpSize; }
  MOELINK_DEVICE constexpr int num_warps() const { return kThreads / kWarpSize; }
  MOELINK_DEVICE int lane() const { return thread() % kWarpSize; }

  MOELINK_DEVICE void sync_block() const {
    asm volatile("bar.sync %0, %1;" ::"n"(kHalf + 1), "n"(kThreads) : "memory");  // 0 is the whole block's
  }
  // The whole block's, for which a half would wait for the other.
  bool sync_block_or(bool) const = delete;
  void sync_first_warps(int) const = delete;
};

/// A spec as half of its threads see it.
template <class Spec>
constexpr Spec of_half_a_block(Spec spec) {
  spec.threads /= 2;
  return spec;
}

#endif

}  // namespace moelink

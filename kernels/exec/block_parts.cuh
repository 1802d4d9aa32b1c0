// A block of parts, whole warps each, which do different things until the whole block meets.
#pragma once

#include "moelink/protocol/types.hpp"
#if MOELINK_ON_DEVICE
#include "moelink/device/exec/device_exec.cuh"
#include "moelink/device/exec/spec.cuh"
#endif

namespace moelink {

#if MOELINK_ON_DEVICE

/// The executor of one part: `kThreads` of the block's threads from `kFirst` on, both multiples of 32. Its block
/// barrier is the part's own: `kBarrier`, from 1, differs between the parts of a block.
template <int kFirst, int kThreads, int kBarrier>
class PartExec : public DeviceExec {
 public:
  static_assert(kFirst % kWarpSize == 0 && kThreads % kWarpSize == 0, "a part of a block is whole warps");
  static_assert(kBarrier > 0, "0 is the whole block's");

  /// Whether the calling thread is of this part.
  MOELINK_DEVICE static bool is_this() {
    return static_cast<int>(threadIdx.x) >= kFirst && static_cast<int>(threadIdx.x) < kFirst + kThreads;
  }

  MOELINK_DEVICE int thread() const {
    const int thread = static_cast<int>(threadIdx.x) - kFirst;
    __builtin_assume(thread >= 0 && thread < kThreads);
    return thread;
  }
  MOELINK_DEVICE constexpr int num_threads() const { return kThreads; }
  MOELINK_DEVICE int warp() const { return thread() / kWarpSize; }
  MOELINK_DEVICE constexpr int num_warps() const { return kThreads / kWarpSize; }
  MOELINK_DEVICE int lane() const { return thread() % kWarpSize; }

  MOELINK_DEVICE void sync_block() const { asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory"); }
  MOELINK_DEVICE bool sync_block_or(bool value) const {
    unsigned any;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, %2, %3, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"(static_cast<unsigned>(value)), "n"(kBarrier), "n"(kThreads)
                 : "memory");
    return any != 0;
  }
  void sync_first_warps(int) const = delete;  // of the whole block's barriers
};

/// The first and the second half of a block of 2 * kThreads.
template <int kHalf, int kThreads>
using HalfExec = PartExec<kHalf * kThreads, kThreads, kHalf + 1>;

/// A spec as half of its threads see it.
template <class Spec>
constexpr Spec of_half_a_block(Spec spec) {
  spec.threads /= 2;
  return spec;
}

#endif

}  // namespace moelink

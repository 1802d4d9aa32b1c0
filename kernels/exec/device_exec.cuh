// The executor on a GPU: a block is a CUDA thread block.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// Who runs an algorithm. See HostExec for the same interface on the host.
class DeviceExec {
 public:
  static constexpr bool kIsDevice = true;
  static constexpr int kWarpSize = 32;

  MOELINK_DEVICE int block() const { return static_cast<int>(blockIdx.x); }
  MOELINK_DEVICE int num_blocks() const { return static_cast<int>(gridDim.x); }
  MOELINK_DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
  MOELINK_DEVICE int num_threads() const { return static_cast<int>(blockDim.x); }
  MOELINK_DEVICE int warp() const { return thread() / kWarpSize; }
  MOELINK_DEVICE int num_warps() const { return num_threads() / kWarpSize; }
  MOELINK_DEVICE int lane() const { return thread() % kWarpSize; }

  MOELINK_DEVICE void sync_block() const { __syncthreads(); }
  /// sync_block(), and whether `value` was true in any thread of the block.
  MOELINK_DEVICE bool sync_block_or(bool value) const { return __syncthreads_or(value) != 0; }
  MOELINK_DEVICE void sync_warp() const { __syncwarp(); }
  /// A barrier of the block's first `count` warps, which alone call it.
  MOELINK_DEVICE void sync_first_warps(int count) const {
    asm volatile("bar.sync 1, %0;" ::"r"(count * kWarpSize) : "memory");
  }

  /// Block-shared scratch memory, 128-byte aligned; as many bytes as the launch asked for.
  MOELINK_DEVICE void* scratch() const {
    extern __shared__ __align__(128) unsigned char moelink_scratch[];
    return moelink_scratch;
  }
};

/// The same for blocks whose size is known at compile time: loops over threads have constant steps, without divisions.
template <int kThreads>
class SizedDeviceExec : public DeviceExec {
 public:
  static_assert(kThreads % kWarpSize == 0, "a block is whole warps");
  MOELINK_DEVICE int thread() const {
    const int thread = static_cast<int>(threadIdx.x);
    __builtin_assume(thread >= 0 && thread < kThreads);
    return thread;
  }
  MOELINK_DEVICE constexpr int num_threads() const { return kThreads; }
  MOELINK_DEVICE int warp() const { return thread() / kWarpSize; }
  MOELINK_DEVICE constexpr int num_warps() const { return kThreads / kWarpSize; }
  MOELINK_DEVICE int lane() const { return thread() % kWarpSize; }
};

}  // namespace moelink

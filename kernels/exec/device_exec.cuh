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

  /// Block-shared scratch memory, 128-byte aligned; as many bytes as the launch asked for.
  MOELINK_DEVICE void* scratch() const {
    extern __shared__ __align__(128) unsigned char moelink_scratch[];
    return moelink_scratch;
  }
};

}  // namespace moelink

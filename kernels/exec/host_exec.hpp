// The executor on the host: a block is one thread of a team, with one "thread" and a warp of one lane.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

class HostExec {
 public:
  static constexpr bool kIsDevice = false;
  static constexpr int kWarpSize = 1;

  constexpr HostExec(int block, int num_blocks, void* scratch)
      : block_(block), num_blocks_(num_blocks), scratch_(scratch) {}

  constexpr int block() const { return block_; }
  constexpr int num_blocks() const { return num_blocks_; }
  constexpr int thread() const { return 0; }
  constexpr int num_threads() const { return 1; }
  constexpr int warp() const { return 0; }
  constexpr int num_warps() const { return 1; }
  constexpr int lane() const { return 0; }

  constexpr void sync_block() const {}
  constexpr bool sync_block_or(bool value) const { return value; }
  constexpr void sync_warp() const {}
  constexpr void sync_first_warps(int) const {}

  /// This block's scratch memory, 128-byte aligned; as many bytes as the launch asked for.
  constexpr void* scratch() const { return scratch_; }

 private:
  int block_;
  int num_blocks_;
  void* scratch_;
};

}  // namespace moelink

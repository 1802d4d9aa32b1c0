// Blocks within a block: teams of threads that an algorithm takes for blocks. A kernel whose blocks wait for other
// ranks has one block per SM, so that what fits on a device is easy to count (docs/nvlink.md, "Progress"); teams are
// how such a block has several rows under way without all of its threads meeting at each.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

#if MOELINK_ON_DEVICE

/// The executor of one team: `kThreads` of the threads of a block of `Block`, a multiple of 32. Team t of block b is
/// block t * (number of blocks) + b: the first ones are on SMs of their own.
template <int kThreads, class Block>
class TeamExec : public Block {
 public:
  using Block::kWarpSize;
  static_assert(kThreads % kWarpSize == 0, "a team is whole warps");
  MOELINK_DEVICE TeamExec(const Block& block, int num_teams, int scratch_bytes)
      : Block(block),
        team_(static_cast<int>(threadIdx.x) / kThreads),
        num_teams_(num_teams),
        scratch_bytes_(scratch_bytes) {}

  MOELINK_DEVICE int block() const { return team_ * Block::num_blocks() + Block::block(); }
  MOELINK_DEVICE int num_blocks() const { return num_teams_ * Block::num_blocks(); }
  MOELINK_DEVICE int thread() const { return static_cast<int>(threadIdx.x) % kThreads; }
  MOELINK_DEVICE constexpr int num_threads() const { return kThreads; }
  MOELINK_DEVICE int warp() const { return thread() / kWarpSize; }
  MOELINK_DEVICE constexpr int num_warps() const { return kThreads / kWarpSize; }
  MOELINK_DEVICE int lane() const { return thread() % kWarpSize; }

  MOELINK_DEVICE void sync_block() const {
    asm volatile("bar.sync %0, %1;" ::"r"(team_ + kFirstBarrier), "n"(kThreads) : "memory");
  }
  MOELINK_DEVICE bool sync_block_or(bool value) const {
    unsigned any;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, %2, %3, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"(static_cast<unsigned>(value)), "r"(team_ + kFirstBarrier), "n"(kThreads)
                 : "memory");
    return any != 0;
  }

  /// This team's scratch.
  MOELINK_DEVICE void* scratch() const {
    return static_cast<unsigned char*>(Block::scratch()) + team_ * scratch_bytes_;
  }

 private:
  static constexpr int kFirstBarrier = 1;  // 0 is the whole block's
  int team_;
  int num_teams_;
  int scratch_bytes_;
};

#endif

/// The teams of `kThreads` threads of a block of `num_threads`, each with `scratch_bytes` of its scratch. On the host a
/// block is one thread, and its own team.
template <int kThreads, class Exec>
MOELINK_DEVICE auto as_team(const Exec& ex, int num_threads, int scratch_bytes) {
#if MOELINK_ON_DEVICE
  return TeamExec<kThreads, Exec>(ex, num_threads / kThreads, scratch_bytes);
#else
  (void)num_threads;
  (void)scratch_bytes;
  return ex;
#endif
}

}  // namespace moelink

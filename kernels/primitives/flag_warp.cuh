// One warp of a block stores the flags of the others. Device only.
//
// A release at system scope waits until all that its SM has stored has reached whoever it goes to. Warps that each
// release what they have stored wait for one another's stores, again and again; one warp that does nothing else waits
// once for all that they have posted meanwhile, and they go on.
//
// Ordering: a poster's lanes store, the warp meets, a lane releases its post to the block; the flag warp acquires it,
// and its fence, at system scope, comes between that and the flags: causality is transitive. Whoever acquires a flag
// sees what was stored before it was posted.
// Progress: the flag warp waits for nobody outside its block; a poster waits for it only if kDepth of its posts are not
// stored yet. That wait has a deadline. The flag warp's own needs none: a poster finishes on every path, after a fault,
// too, and each of its waits is bounded.
// For kernels that have a warp to spare, which then does nothing else (nvlink_combine_stream.cuh).
#pragma once

#include "moelink/protocol/types.hpp"

#if MOELINK_ON_DEVICE

#include "moelink/device/ptx/fence.cuh"
#include "moelink/device/ptx/load_store.cuh"
#include "moelink/device/sync/wait_until.cuh"

namespace moelink {

/// Block scratch, of up to 31 posters.
struct FlagPosts {
  static constexpr int kMostPosters = 31;
  static constexpr u32 kDepth = 4;
  static constexpr u32 kIsLast = 0x80000000U;
  u64* flags[kMostPosters + 1][kDepth];
  u32 posted[kMostPosters + 1];  ///< how many; kIsLast: there will be no more
  u32 stored[kMostPosters + 1];
};

/// By the block, a block barrier before anybody posts.
template <class Exec>
MOELINK_DEVICE void clear(const Exec& ex, FlagPosts& posts) {
  if (ex.thread() > FlagPosts::kMostPosters) return;
  posts.posted[ex.thread()] = 0;
  posts.stored[ex.thread()] = 0;
}

/// A warp that posts.
class FlagPoster {
 public:
  MOELINK_DEVICE FlagPoster(FlagPosts& posts, int poster) : posts_(posts), poster_(poster) {}

  /// By the whole warp: `flag` and the others behind it shall tell what the warp has stored. `wait`: what a fault says
  /// if earlier posts are never stored. False, in all lanes: a fault, and nothing is posted.
  template <class Exec>
  MOELINK_DEVICE bool post(const Exec& ex, const FaultContext& fault, const WaitFor& wait, u64* flag) {
    ex.sync_warp();
    bool has_room = true;
    if (ex.lane() == 0) {
      has_room = wait_until(fault, wait, [&](u64& seen) {
        seen = ld_acquire_block(&posts_.stored[poster_]);
        return count_ - static_cast<u32>(seen) < FlagPosts::kDepth;
      });
      if (has_room) {
        posts_.flags[poster_][count_ % FlagPosts::kDepth] = flag;
        st_release_block(&posts_.posted[poster_], count_ + 1);
      }
    }
    has_room = __shfl_sync(0xffffffffU, static_cast<int>(has_room), 0) != 0;
    if (has_room) ++count_;
    return has_room;
  }
  /// By the whole warp, at its end.
  template <class Exec>
  MOELINK_DEVICE void finish(const Exec& ex) const {
    if (ex.lane() == 0) st_release_block(&posts_.posted[poster_], count_ | FlagPosts::kIsLast);
  }

 private:
  FlagPosts& posts_;
  int poster_;
  u32 count_ = 0;
};

/// By the flag warp, until all posters have finished: stores `value` to what they post, `num_flags` in a row.
template <class Exec>
MOELINK_DEVICE void store_posted_flags(const Exec& ex, FlagPosts& posts, int num_posters, int num_flags, u64 value) {
  constexpr u32 kAll = 0xffffffffU;
  const bool has_poster = ex.lane() < num_posters;
  u32 stored = 0;
  bool is_over = false;
  MOELINK_NO_UNROLL
  while (!is_over) {
    const u32 seen = has_poster ? ld_acquire_block(&posts.posted[ex.lane()]) : FlagPosts::kIsLast;
    const u32 posted = seen & ~FlagPosts::kIsLast;
    is_over = __all_sync(kAll, seen == (stored | FlagPosts::kIsLast)) != 0;
    if (__any_sync(kAll, posted != stored) == 0) continue;
    fence_acq_rel_sys();
    MOELINK_NO_UNROLL
    for (; stored != posted; ++stored) {
      u64* const flags = posts.flags[ex.lane()][stored % FlagPosts::kDepth];
      MOELINK_NO_UNROLL
      for (int i = 0; i < num_flags; ++i) st_relaxed_sys(flags + i, value);
    }
    if (has_poster) st_release_block(&posts.stored[ex.lane()], stored);
    ex.sync_warp();
  }
}

}  // namespace moelink

#endif

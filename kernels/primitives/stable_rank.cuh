// Stable ranks: how many earlier entries chose the same expert. Entries are seen as 16-bit codes (moe/routing.cuh).
#pragma once

#include "moelink/device/primitives/warp.cuh"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// This lane's share of: how many of codes[0, end) equal `code`. The warp's shares add up to the whole. `codes` is
/// block scratch, 16-byte aligned.
template <class Exec>
MOELINK_DEVICE u32 count_equal(const Exec& ex, const u16* codes, int end, u16 code) {
#if MOELINK_ON_DEVICE
  constexpr int kPerVector = 8;
  const Vec16* vectors = reinterpret_cast<const Vec16*>(codes);
  const u32 pattern = code * 0x10001u;
  u32 matches = 0;  // two 16-bit counts
#pragma unroll 1
  for (int v = ex.lane(); v < end / kPerVector; v += 32) {
    const Vec16 eight = vectors[v];
    matches += __vseteq2(eight.x, pattern) + __vseteq2(eight.y, pattern);
    matches += __vseteq2(eight.z, pattern) + __vseteq2(eight.w, pattern);
  }
  u32 count = (matches & 0xffffu) + (matches >> 16);
  const int last = end / kPerVector * kPerVector + ex.lane();
  if (last < end) count += codes[last] == code;
  return count;
#else
  (void)ex;
  u32 count = 0;
  for (int i = 0; i < end; ++i) count += codes[i] == code ? 1 : 0;
  return count;
#endif
}

/// This lane's share of: the sum of counts[0, end), each rounded up to `alignment` (a power of two). `counts` is block
/// scratch, 16-byte aligned.
template <class Exec>
MOELINK_DEVICE u32 sum_aligned(const Exec& ex, const u32* counts, int end, u32 alignment) {
  const u32 mask = alignment - 1;
  u32 sum = 0;
#if MOELINK_ON_DEVICE
  const Vec16* vectors = reinterpret_cast<const Vec16*>(counts);
#pragma unroll 1
  for (int v = ex.lane(); v < end / 4; v += 32) {
    const Vec16 four = vectors[v];
    sum += ((four.x + mask) & ~mask) + ((four.y + mask) & ~mask);
    sum += ((four.z + mask) & ~mask) + ((four.w + mask) & ~mask);
  }
  const int last = end / 4 * 4 + ex.lane();
  if (last < end) sum += (counts[last] + mask) & ~mask;
#else
  (void)ex;
  for (int i = 0; i < end; ++i) sum += (counts[i] + mask) & ~mask;
#endif
  return sum;
}

/// Each lane with a valid code (below `num_codes`) gets next[code] plus the number of lower lanes with the same code;
/// next[code] then moves past all of them. By one warp, which alone uses `next` (block scratch). Stable because lanes
/// hold entries in order and calls follow one another.
template <class Exec>
MOELINK_DEVICE u32 take_next(const Exec& ex, u32* next, u16 code, int num_codes) {
  const bool valid = code < num_codes;
#if MOELINK_ON_DEVICE
  const u32 same = __match_any_sync(0xffffffffu, static_cast<u32>(code));
  const u32 first = valid ? next[code] : 0;
  const u32 taken = first + __popc(same & ((1u << ex.lane()) - 1));
  ex.sync_warp();
  if (valid && (same >> ex.lane()) == 1) next[code] = taken + 1;  // the highest lane of its group
  ex.sync_warp();
  return taken;
#else
  (void)ex;
  return valid ? next[code]++ : 0;
#endif
}

}  // namespace moelink

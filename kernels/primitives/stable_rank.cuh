// Stable ranks: how many earlier entries chose the same expert. Entries are seen as 16-bit codes (moe/routing.cuh).
#pragma once

#include "moelink/device/primitives/warp.cuh"
#include "moelink/protocol/types.hpp"

namespace moelink {

#if MOELINK_ON_DEVICE
/// Which of the eight codes in `eight` equal `code`: elements 0, 2, 4, 6 in bits 0 to 3, elements 1, 3, 5, 7 in bits 16
/// to 19.
MOELINK_DEVICE u32 match_eight(const Vec16& eight, u32 code) {
  const u32 pattern = code * 0x10001u;
  const auto zero_halves = [](u32 difference) {  // bit 15 of each half that is zero
    return ~(((difference & 0x7fff7fffu) + 0x7fff7fffu) | difference | 0x7fff7fffu);
  };
  return zero_halves(eight.x ^ pattern) >> 15 | zero_halves(eight.y ^ pattern) >> 14 |
         zero_halves(eight.z ^ pattern) >> 13 | zero_halves(eight.w ^ pattern) >> 12;
}

/// The bits of match_eight() for the first `count` elements, 0 to 8.
MOELINK_DEVICE u32 first_of_eight(int count) {
  return ((1u << ((count + 1) / 2)) - 1) | ((1u << (count / 2)) - 1) << 16;
}
#endif

/// This lane's share of: how many of codes[0, end) equal `code`. The warp's shares add up to the whole. `codes` is
/// block scratch, 16-byte aligned, readable to a multiple of 16 bytes.
template <class Exec>
MOELINK_DEVICE u32 count_equal(const Exec& ex, const u16* codes, int end, u16 code) {
  u32 count = 0;
#if MOELINK_ON_DEVICE
  const Vec16* vectors = reinterpret_cast<const Vec16*>(codes);
  // No address depends on `code`, which may still be on its way from scratch itself.
#pragma unroll 1
  for (int first = ex.lane() * 8; first < end; first += 32 * 8) {
    count += __popc(match_eight(vectors[first / 8], code) & first_of_eight(min_of(end - first, 8)));
  }
#else
  (void)ex;
  for (int i = 0; i < end; ++i) count += codes[i] == code ? 1 : 0;
#endif
  return count;
}

/// This lane's share of: the sum of first[i] + second[i] over i < end, each rounded up to `alignment` (a power of two),
/// for an `end` that is still on its way: a GPU reads all `num_counts` (few), whatever it is. Both are block scratch,
/// 16-byte aligned, readable to a multiple of 16 bytes.
template <class Exec>
MOELINK_DEVICE u32 sum_aligned_pairs(const Exec& ex, const u32* first, const u32* second, int num_counts, int end,
                                     u32 alignment) {
  constexpr int kWarp = Exec::kWarpSize;
  const u32 mask = alignment - 1;
  u32 sum = 0;
  const int bound = Exec::kIsDevice ? num_counts : min_of(num_counts, end);
  MOELINK_UNROLL
  for (int base = 0; base < bound; base += 4 * kWarp) {
    const int i = base + ex.lane() * 4;
    if (i >= bound) continue;
    const Vec16 a = reinterpret_cast<const Vec16*>(first)[i / 4];
    const Vec16 b = reinterpret_cast<const Vec16*>(second)[i / 4];
    sum += i < end ? (a.x + b.x + mask) & ~mask : 0;
    sum += i + 1 < end ? (a.y + b.y + mask) & ~mask : 0;
    sum += i + 2 < end ? (a.z + b.z + mask) & ~mask : 0;
    sum += i + 3 < end ? (a.w + b.w + mask) & ~mask : 0;
  }
  return sum;
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

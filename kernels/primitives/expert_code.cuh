// Expert ids in 16 bits, for scratch.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

// Two codes above every expert.
inline constexpr u16 kSkippedCode = 0xffff;
inline constexpr u16 kOutOfRangeCode = 0xfffe;
static_assert(kMaxExperts <= kOutOfRangeCode);

/// An id. Reading and judging are apart, so that several loads can be under way.
struct IdWords {
  u32 low = 0xffffffff;
  u32 high = 0xffffffff;

  /// All 64 bits count: an int64 id whose low half looks valid is out of range.
  MOELINK_DEVICE u16 code(i32 num_experts) const {
    if (high == 0 && low < static_cast<u32>(num_experts)) return static_cast<u16>(low);
    return (low & high) == 0xffffffff ? kSkippedCode : kOutOfRangeCode;
  }

  /// The same where only the experts [first, first + num_here) are here: others are skipped.
  MOELINK_DEVICE u16 code(i32 num_experts, i32 first, i32 num_here) const {
    const u16 global = code(num_experts);
    const u32 here = static_cast<u32>(global) - static_cast<u32>(first);
    if (global == kOutOfRangeCode || global == kSkippedCode) return global;
    return here < static_cast<u32>(num_here) ? static_cast<u16>(here) : kSkippedCode;
  }

  /// All 64 bits of an id of `id_bytes` bytes, of which 4 have set `low` alone.
  MOELINK_DEVICE IdWords widened(i32 id_bytes) const {
    return {low, id_bytes == 4 ? static_cast<u32>(static_cast<i32>(low) >> 31) : high};
  }

  /// Which of num_experts + 2 counters the id adds to: its expert's, that of ids out of range, or that of skipped ones.
  /// The same as code(), without branches.
  MOELINK_DEVICE u32 counter(u32 num_experts) const {
    const u32 in_range = min_of(low, num_experts);
    const u32 not_in_range = (low & high) == 0xffffffff ? num_experts + 1 : num_experts;
    return high == 0 ? in_range : not_in_range;
  }
  MOELINK_DEVICE u32 counter(u32 num_experts, u32 first, u32 num_here) const {
    const u32 global = counter(num_experts);
    const u32 here = global - first;
    return global == num_experts ? num_here : here < num_here ? here : num_here + 1;
  }
};

/// Element `index` of an array of int32 (id_bytes 4) or int64 (8), before widened(): it touches nothing that it reads,
/// so that other loads can follow at once.
MOELINK_DEVICE IdWords load_raw_id(const void* ids, i32 id_bytes, i64 index) {
  IdWords id;
#if MOELINK_ON_DEVICE
  const u32* words = reinterpret_cast<const u32*>(static_cast<const u8*>(ids) + index * id_bytes);
  id.low = words[0];
  if (id_bytes == 8) id.high = words[1];
#else
  if (id_bytes == 8) {
    const u64 wide = static_cast<const u64*>(ids)[index];
    id = {static_cast<u32>(wide), static_cast<u32>(wide >> 32)};
  } else {
    id.low = static_cast<const u32*>(ids)[index];
  }
#endif
  return id;
}

/// Waits for it.
MOELINK_DEVICE IdWords load_id(const void* ids, i32 id_bytes, i64 index) {
  return load_raw_id(ids, id_bytes, index).widened(id_bytes);
}

/// Up to kCount elements of an array of ids, `step` apart, as loaded by one thread.
template <int kCount>
class IdBatch {
 public:
  /// Begins to read elements index, index + step, ... below `end`. Touches nothing that it reads, so that other loads
  /// can follow at once.
  MOELINK_DEVICE void load(const void* array, i32 id_bytes, i64 index, i32 step, i64 end) {
    const i32 left = static_cast<i32>(min_of(max_of(end - index, i64{0}), i64{kCount} * step));
    if (id_bytes == 4) {
      const u32* narrow = static_cast<const u32*>(array) + index;
      MOELINK_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if (i * step >= left) break;
        words_[i].low = narrow[i * step];
      }
    } else {
      const u64* wide = static_cast<const u64*>(array) + index;
      MOELINK_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if (i * step >= left) break;
        const u64 id = wide[i * step];
        words_[i] = {static_cast<u32>(id), static_cast<u32>(id >> 32)};
      }
    }
  }

  /// The element that load() read at index + i * step. Waits for it.
  MOELINK_DEVICE IdWords get(int i, i32 id_bytes) const { return words_[i].widened(id_bytes); }

 private:
  IdWords words_[kCount];  ///< not widened yet
};

}  // namespace moelink

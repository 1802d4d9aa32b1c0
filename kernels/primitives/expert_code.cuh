// Expert ids in 16 bits, for scratch.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

// Two codes above every expert.
inline constexpr u16 kSkippedCode = 0xffff;
inline constexpr u16 kOutOfRangeCode = 0xfffe;
static_assert(kMaxExperts <= kOutOfRangeCode);

/// An id as loaded. Reading and judging are apart, so that several loads can be under way.
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
};

/// Element `index` of an array of int32 (id_bytes 4) or int64 (8).
MOELINK_DEVICE IdWords load_id(const void* ids, i32 id_bytes, i64 index) {
  IdWords id;
#if MOELINK_ON_DEVICE
  const u32* words = reinterpret_cast<const u32*>(static_cast<const u8*>(ids) + index * id_bytes);
  id.low = words[0];
  id.high = id_bytes == 8 ? words[1] : static_cast<u32>(static_cast<i32>(id.low) >> 31);
#else
  i64 wide = 0;
  if (id_bytes == 8) {
    wide = static_cast<const i64*>(ids)[index];
  } else {
    wide = static_cast<const i32*>(ids)[index];
  }
  id.low = static_cast<u32>(static_cast<u64>(wide));
  id.high = static_cast<u32>(static_cast<u64>(wide) >> 32);
#endif
  return id;
}

/// Up to kCount elements of an array of ids, `step` apart, as loaded by one thread.
template <int kCount>
struct IdBatch {
  IdWords ids[kCount];

  /// Begins to read elements index, index + step, ... below `end`.
  MOELINK_DEVICE void load(const void* array, i32 id_bytes, i64 index, i32 step, i64 end) {
    if (id_bytes == 4) {
      const i32* narrow = static_cast<const i32*>(array) + index;
      MOELINK_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if (index + i * step >= end) break;
        ids[i].low = static_cast<u32>(narrow[i * step]);
      }
      MOELINK_UNROLL
      for (int i = 0; i < kCount; ++i) ids[i].high = static_cast<u32>(static_cast<i32>(ids[i].low) >> 31);
    } else {
      const i64* wide = static_cast<const i64*>(array) + index;
      MOELINK_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if (index + i * step >= end) break;
        const u64 id = static_cast<u64>(wide[i * step]);
        ids[i] = {static_cast<u32>(id), static_cast<u32>(id >> 32)};
      }
    }
  }
};

}  // namespace moelink

// Words that say which call they belong to: 32 bits of data and a tag made of the epoch, in 64 bits that one access reads
// or writes whole. Whoever sees the tag has the data: no flag, one trip.
#pragma once

#include "moelink/device/ptx/load_store.cuh"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// A tag of an epoch and nothing else. Never zero, so that fresh memory does not match. Two epochs with one tag are 2^31 apart.
MOELINK_DEVICE u32 tag_of(u64 epoch) { return static_cast<u32>(epoch) | 0x80000000U; }

MOELINK_DEVICE u64 tagged(u32 value, u32 tag) { return static_cast<u64>(tag) << 32U | value; }
MOELINK_DEVICE u32 data_of(u64 word) { return static_cast<u32>(word); }

/// Whether both words carry the tag.
MOELINK_DEVICE bool carry(const WordPair& words, u32 tag) {
  const u64 expected = tagged(0, tag);
  return ((words.first ^ expected) | (words.second ^ expected)) >> 32U == 0;
}

}  // namespace moelink

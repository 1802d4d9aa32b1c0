// Lines: words that carry what they say, and vouch for nothing that is stored elsewhere (sync/tagged_word.cuh).
//
// NOTE [lines and earlier launches]. A header of epoch e also says that its sender's earlier launches are done with what
// they read, so that the reader may overwrite it. Those loads had their values when their launches ended, before the line
// was stored: nothing that is stored later can reach them. So a GPU needs no fence here; it had one, which took 1.5 us, as
// long as all else before the first row. On the host ThreadSanitizer is to see that order: there lines are released and
// acquired.
#pragma once

#include "moelink/device/ptx/load_store.cuh"
#include "moelink/protocol/types.hpp"

namespace moelink {

MOELINK_DEVICE void st_line_sys(u64* address, u64 value) {
#if MOELINK_ON_DEVICE
  st_relaxed_sys(address, value);
#else
  st_release_sys(address, value);
#endif
}

/// Two words, each atomic on its own.
MOELINK_DEVICE void st_line_sys_pair(WordPair* address, WordPair value) {
#if MOELINK_ON_DEVICE
  st_relaxed_sys_pair(address, value);
#else
  st_line_sys(&address->first, value.first);
  st_line_sys(&address->second, value.second);
#endif
}

/// What st_line_sys_pair stored, or two lines of st_line_sys.
MOELINK_DEVICE WordPair ld_line_sys_pair(const WordPair* address) {
#if MOELINK_ON_DEVICE
  return ld_relaxed_sys_pair(address);
#else
  return ld_acquire_sys_pair(address);
#endif
}

// NOTE [wide lines]. A wide line is 16 bytes, {x, y, z: data; w: tag}, that one access stores and one loads, whole. PTX
// vectors promise no such thing: of .v2.b64 each half is atomic on its own. The scalar type .b128 does, at system scope
// since PTX ISA 8.4, between GPUs with native atomics to each other's memory, which over NVLink is so
// (docs/all-reduce.md, "Pack", says where that is written). On the host the tag is released after the data and acquired
// before it: then the data is no older, and no newer either as long as the writer does not store again before the
// reader has read.

MOELINK_DEVICE void st_wide_line_sys(Vec16* address, const Vec16& line) {
  const u64 low = static_cast<u64>(line.y) << 32U | line.x;
  const u64 high = static_cast<u64>(line.w) << 32U | line.z;
#if MOELINK_ON_DEVICE
  asm volatile("{ .reg .b128 line; mov.b128 line, {%1, %2}; st.relaxed.sys.global.b128 [%0], line; }" ::"l"(address),
               "l"(low), "l"(high)
               : "memory");
#else
  WordPair* words = reinterpret_cast<WordPair*>(address);
  st_relaxed_sys(&words->first, low);
  st_release_sys(&words->second, high);
#endif
}

/// What st_wide_line_sys stored.
MOELINK_DEVICE Vec16 ld_wide_line_sys(const Vec16* address) {
#if MOELINK_ON_DEVICE
  u64 low;
  u64 high;
  asm volatile("{ .reg .b128 line; ld.relaxed.sys.global.b128 line, [%2]; mov.b128 {%0, %1}, line; }"
               : "=l"(low), "=l"(high)
               : "l"(address)
               : "memory");
#else
  const WordPair* words = reinterpret_cast<const WordPair*>(address);
  const u64 high = ld_acquire_sys(&words->second);
  const u64 low = ld_relaxed_sys(&words->first);
#endif
  return {static_cast<u32>(low), static_cast<u32>(low >> 32U), static_cast<u32>(high), static_cast<u32>(high >> 32U)};
}

}  // namespace moelink

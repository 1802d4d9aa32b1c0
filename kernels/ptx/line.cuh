// Lines: words that carry what they say, and vouch for nothing that is stored elsewhere (sync/tagged_word.cuh).
//
// NOTE [lines and earlier launches]. A header of epoch e also says that its sender's earlier launches are done with what
// they read, so that the reader may overwrite it. Those loads had their values when their launches ended, before the line
// was stored: nothing that is stored later can reach them. So a GPU needs no fence here; it had one, which took 1.5 us, as
// long as all else before the first row. On the host ThreadSanitizer is to see that order: there lines are released and
// acquired.
#pragma once

#include "moelink/device/ptx/load_store.cuh"

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

}  // namespace moelink

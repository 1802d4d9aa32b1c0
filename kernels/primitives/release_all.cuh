// One release that many words carry.
#pragma once

#include "moelink/device/ptx/fence.cuh"
#include "moelink/device/ptx/load_store.cuh"

namespace moelink {

/// Stores `value` into word_of(0 .. count - 1), words of other devices among them; null ones are left out. Whoever
/// acquires one of them sees all that this thread did and observed before.
///
/// On a GPU by one fence and relaxed stores: a release at system scope waits for the device's traffic to settle, and
/// with peers mapped those waits are served one after the other (0.55 us each over NVLink, docs/decisions/), so one
/// fence for all words matters. The host releases each word; ThreadSanitizer sees no stand-alone fence.
template <class WordOf>
MOELINK_DEVICE void st_release_sys_all(int count, u64 value, WordOf&& word_of) {
#if MOELINK_ON_DEVICE
  fence_acq_rel_sys();
#endif
  for (int i = 0; i < count; ++i) {
    if (u64* word = word_of(i); word != nullptr) {
#if MOELINK_ON_DEVICE
      st_relaxed_sys(word, value);
#else
      st_release_sys(word, value);
#endif
    }
  }
}

}  // namespace moelink

// A small array that the block reads early and uses late: on a GPU each thread holds one element meanwhile.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// At most one element per thread of a block (kMaxTopK always fits).
template <class Exec, class T>
class Held {
 public:
  /// By the block: begins to read source[0, count). A null source stands for `otherwise` everywhere.
  MOELINK_DEVICE void load(const Exec& ex, const T* source, int count, T otherwise) {
    count_ = count;
#if MOELINK_ON_DEVICE
    held_ = source != nullptr && ex.thread() < count ? source[ex.thread()] : otherwise;
#else
    (void)ex;
    source_ = source;
    held_ = otherwise;
#endif
  }

  /// By the block: destination[0, count) = what was read.
  MOELINK_DEVICE void store(const Exec& ex, T* destination) const {
    for (int i = ex.thread(); i < count_; i += ex.num_threads()) destination[i] = get(i);
  }

  /// Element `i`, which is the thread's own: i % num_threads is the thread.
  MOELINK_DEVICE T get(int i) const {
#if MOELINK_ON_DEVICE
    (void)i;
    return held_;
#else
    return source_ == nullptr ? held_ : source_[i];
#endif
  }

 private:
  T held_;
  int count_ = 0;
#if !MOELINK_ON_DEVICE
  const T* source_ = nullptr;
#endif
};

}  // namespace moelink

// What the wrappers of this folder work on: words of 32 or 64 bits, and their host bodies.
#pragma once

#include "moelink/protocol/types.hpp"
#if !MOELINK_ON_DEVICE
#include <atomic>
#endif

namespace moelink {

template <class T>
inline constexpr bool kIsAtomicWord = false;
template <>
inline constexpr bool kIsAtomicWord<i32> = true;
template <>
inline constexpr bool kIsAtomicWord<u32> = true;
template <>
inline constexpr bool kIsAtomicWord<i64> = true;
template <>
inline constexpr bool kIsAtomicWord<u64> = true;

/// A word that one access reads or writes whole, on every path between devices and on the host.
template <class T>
concept AtomicWord = kIsAtomicWord<T>;

#if !MOELINK_ON_DEVICE
/// The host's view of a word in memory that others write: the same orders, as std::atomic_ref.
template <AtomicWord T>
std::atomic_ref<T> atomic_word(const T* address) {
  return std::atomic_ref<T>(*const_cast<T*>(address));  // NOLINT: loads only, if the caller's pointer was const
}
#endif

}  // namespace moelink

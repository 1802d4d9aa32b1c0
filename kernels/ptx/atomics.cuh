// Read-modify-writes of single words with memory order and scope in their names (NOTE [memory order], load_store.cuh).
// One PTX instruction each; on the host a std::atomic_ref with the same order. `red_` returns nothing, so nothing waits
// for it; `atom_` returns the value before.
#pragma once

#include "moelink/device/ptx/word.cuh"

namespace moelink {

/// Adds, without order.
template <AtomicWord T>
MOELINK_DEVICE void red_add_relaxed_gpu(T* address, T addend) {
#if MOELINK_ON_DEVICE
  if constexpr (sizeof(T) == 4) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(address), "l"(addend) : "memory");
  }
#else
  atomic_word(address).fetch_add(addend, std::memory_order_relaxed);
#endif
}

/// Adds, without order.
template <AtomicWord T>
MOELINK_DEVICE void red_add_relaxed_sys(T* address, T addend) {
#if MOELINK_ON_DEVICE
  if constexpr (sizeof(T) == 4) {
    asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;" ::"l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(address), "l"(addend) : "memory");
  }
#else
  atomic_word(address).fetch_add(addend, std::memory_order_relaxed);
#endif
}

/// Adds, and releases all before it to whoever acquires the sum or a later one.
template <AtomicWord T>
MOELINK_DEVICE void red_add_release_gpu(T* address, T addend) {
#if MOELINK_ON_DEVICE
  if constexpr (sizeof(T) == 4) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(address), "l"(addend) : "memory");
  }
#else
  atomic_word(address).fetch_add(addend, std::memory_order_release);
#endif
}

/// Adds, and releases all before it to whoever acquires the sum or a later one.
template <AtomicWord T>
MOELINK_DEVICE void red_add_release_sys(T* address, T addend) {
#if MOELINK_ON_DEVICE
  if constexpr (sizeof(T) == 4) {
    asm volatile("red.release.sys.global.add.u32 [%0], %1;" ::"l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(address), "l"(addend) : "memory");
  }
#else
  atomic_word(address).fetch_add(addend, std::memory_order_release);
#endif
}

/// Adds, without order: a ticket.
template <AtomicWord T>
MOELINK_DEVICE T atom_add_relaxed_gpu(T* address, T addend) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(addend) : "memory");
  }
  return before;
#else
  return atomic_word(address).fetch_add(addend, std::memory_order_relaxed);
#endif
}

/// Adds, without order: a ticket.
template <AtomicWord T>
MOELINK_DEVICE T atom_add_relaxed_sys(T* address, T addend) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.relaxed.sys.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(addend) : "memory");
  }
  return before;
#else
  return atomic_word(address).fetch_add(addend, std::memory_order_relaxed);
#endif
}

/// Adds, and acquires what earlier adds released.
template <AtomicWord T>
MOELINK_DEVICE T atom_add_acquire_gpu(T* address, T addend) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.acquire.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("atom.acquire.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(addend) : "memory");
  }
  return before;
#else
  return atomic_word(address).fetch_add(addend, std::memory_order_acquire);
#endif
}

/// Adds, and acquires what earlier adds released.
template <AtomicWord T>
MOELINK_DEVICE T atom_add_acquire_sys(T* address, T addend) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.acquire.sys.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("atom.acquire.sys.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(addend) : "memory");
  }
  return before;
#else
  return atomic_word(address).fetch_add(addend, std::memory_order_acquire);
#endif
}

/// Adds, and releases all before it.
template <AtomicWord T>
MOELINK_DEVICE T atom_add_release_gpu(T* address, T addend) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("atom.release.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(addend) : "memory");
  }
  return before;
#else
  return atomic_word(address).fetch_add(addend, std::memory_order_release);
#endif
}

/// Adds, and releases all before it.
template <AtomicWord T>
MOELINK_DEVICE T atom_add_release_sys(T* address, T addend) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.release.sys.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("atom.release.sys.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(addend) : "memory");
  }
  return before;
#else
  return atomic_word(address).fetch_add(addend, std::memory_order_release);
#endif
}

/// Adds; acquires what earlier adds released, and releases it together with all before: a counter that gathers writers.
template <AtomicWord T>
MOELINK_DEVICE T atom_add_acq_rel_gpu(T* address, T addend) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(addend) : "memory");
  }
  return before;
#else
  return atomic_word(address).fetch_add(addend, std::memory_order_acq_rel);
#endif
}

/// Adds; acquires what earlier adds released, and releases it together with all before: a counter that gathers writers.
template <AtomicWord T>
MOELINK_DEVICE T atom_add_acq_rel_sys(T* address, T addend) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(addend) : "memory");
  } else {
    asm volatile("atom.acq_rel.sys.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(addend) : "memory");
  }
  return before;
#else
  return atomic_word(address).fetch_add(addend, std::memory_order_acq_rel);
#endif
}

/// Makes the value at least `floor`, without order. Unsigned.
MOELINK_DEVICE void red_max_relaxed_gpu(u64* address, u64 floor) {
#if MOELINK_ON_DEVICE
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(address), "l"(floor) : "memory");
#else
  const auto word = atomic_word(address);
  u64 seen = word.load(std::memory_order_relaxed);
  while (seen < floor && !word.compare_exchange_weak(seen, floor, std::memory_order_relaxed)) {
  }
#endif
}

/// Replaces the value, without order.
template <AtomicWord T>
MOELINK_DEVICE T atom_exch_relaxed_gpu(T* address, T value) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
  } else {
    asm volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(value) : "memory");
  }
  return before;
#else
  return atomic_word(address).exchange(value, std::memory_order_relaxed);
#endif
}

/// Replaces the value, without order.
template <AtomicWord T>
MOELINK_DEVICE T atom_exch_relaxed_sys(T* address, T value) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.relaxed.sys.global.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
  } else {
    asm volatile("atom.relaxed.sys.global.exch.b64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(value) : "memory");
  }
  return before;
#else
  return atomic_word(address).exchange(value, std::memory_order_relaxed);
#endif
}

/// Replaces the value; acquires what came with the old one and releases all before.
template <AtomicWord T>
MOELINK_DEVICE T atom_exch_acq_rel_gpu(T* address, T value) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.acq_rel.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
  } else {
    asm volatile("atom.acq_rel.gpu.global.exch.b64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(value) : "memory");
  }
  return before;
#else
  return atomic_word(address).exchange(value, std::memory_order_acq_rel);
#endif
}

/// Replaces the value; acquires what came with the old one and releases all before.
template <AtomicWord T>
MOELINK_DEVICE T atom_exch_acq_rel_sys(T* address, T value) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.acq_rel.sys.global.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
  } else {
    asm volatile("atom.acq_rel.sys.global.exch.b64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(value) : "memory");
  }
  return before;
#else
  return atomic_word(address).exchange(value, std::memory_order_acq_rel);
#endif
}

/// Replaces the value if it is `expected`, without order. Returns the value before.
template <AtomicWord T>
MOELINK_DEVICE T atom_cas_relaxed_gpu(T* address, T expected, T value) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(address), "r"(expected), "r"(value)
                 : "memory");
  } else {
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(address), "l"(expected), "l"(value)
                 : "memory");
  }
  return before;
#else
  atomic_word(address).compare_exchange_strong(expected, value, std::memory_order_relaxed, std::memory_order_relaxed);
  return expected;
#endif
}

/// Replaces the value if it is `expected`, without order. Returns the value before.
template <AtomicWord T>
MOELINK_DEVICE T atom_cas_relaxed_sys(T* address, T expected, T value) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(address), "r"(expected), "r"(value)
                 : "memory");
  } else {
    asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(address), "l"(expected), "l"(value)
                 : "memory");
  }
  return before;
#else
  atomic_word(address).compare_exchange_strong(expected, value, std::memory_order_relaxed, std::memory_order_relaxed);
  return expected;
#endif
}

/// Replaces the value if it is `expected`; acquires, and releases if it replaced. Returns the value before.
template <AtomicWord T>
MOELINK_DEVICE T atom_cas_acq_rel_gpu(T* address, T expected, T value) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(address), "r"(expected), "r"(value)
                 : "memory");
  } else {
    asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(address), "l"(expected), "l"(value)
                 : "memory");
  }
  return before;
#else
  atomic_word(address).compare_exchange_strong(expected, value, std::memory_order_acq_rel, std::memory_order_acquire);
  return expected;
#endif
}

/// Replaces the value if it is `expected`; acquires, and releases if it replaced. Returns the value before.
template <AtomicWord T>
MOELINK_DEVICE T atom_cas_acq_rel_sys(T* address, T expected, T value) {
#if MOELINK_ON_DEVICE
  T before;
  if constexpr (sizeof(T) == 4) {
    asm volatile("atom.acq_rel.sys.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(address), "r"(expected), "r"(value)
                 : "memory");
  } else {
    asm volatile("atom.acq_rel.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(address), "l"(expected), "l"(value)
                 : "memory");
  }
  return before;
#else
  atomic_word(address).compare_exchange_strong(expected, value, std::memory_order_acq_rel, std::memory_order_acquire);
  return expected;
#endif
}

}  // namespace moelink

// Loads and stores of single words with memory order and scope in their names. One PTX instruction each; on the host a
// std::atomic_ref with the same order.
//
// NOTE [memory order]. Scopes: `block` orders threads of one block, `gpu` those of one device, `sys` also those of
// other devices and the host. On the host all are the same. Wrappers of scope `gpu` and `sys` address global memory: of
// this device, of a peer, or of the host; those of scope `block` also the block's scratch.
//  - release: everything this thread did before, and everything it has observed (so after a block barrier: everything
//    its block did before), is visible to whoever acquires the value.
//  - acquire: everything that the writer released with the value it returns is visible to this thread afterwards, and
//    to its block after a block barrier.
//  - relaxed: no order with other words; reads and writes are single, and a thread never sees a word go back in time.
// A chain of read-modify-writes does not break what an earlier release in it offers (a release sequence), so that one
// counter can gather many writers.
#pragma once

#include "moelink/device/ptx/word.cuh"

namespace moelink {

/// A coherent read, without order.
template <AtomicWord T>
MOELINK_DEVICE T ld_relaxed_gpu(const T* address) {
#if MOELINK_ON_DEVICE
  T value;
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  } else {
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  }
  return value;
#else
  return atomic_word(address).load(std::memory_order_relaxed);
#endif
}

/// A coherent read of what any device or the host writes, without order.
template <AtomicWord T>
MOELINK_DEVICE T ld_relaxed_sys(const T* address) {
#if MOELINK_ON_DEVICE
  T value;
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  } else {
    asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  }
  return value;
#else
  return atomic_word(address).load(std::memory_order_relaxed);
#endif
}

/// Acquires what the writer of the value released, in this block. What others released to that writer is visible, too.
template <AtomicWord T>
MOELINK_DEVICE T ld_acquire_block(const T* address) {
#if MOELINK_ON_DEVICE
  T value;
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.acquire.cta.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  } else {
    asm volatile("ld.acquire.cta.b64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  }
  return value;
#else
  return atomic_word(address).load(std::memory_order_acquire);
#endif
}

/// Acquires what the writer of the value released, on this device.
template <AtomicWord T>
MOELINK_DEVICE T ld_acquire_gpu(const T* address) {
#if MOELINK_ON_DEVICE
  T value;
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  } else {
    asm volatile("ld.acquire.gpu.global.b64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  }
  return value;
#else
  return atomic_word(address).load(std::memory_order_acquire);
#endif
}

/// Acquires what the writer of the value released, wherever it ran.
template <AtomicWord T>
MOELINK_DEVICE T ld_acquire_sys(const T* address) {
#if MOELINK_ON_DEVICE
  T value;
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  } else {
    asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  }
  return value;
#else
  return atomic_word(address).load(std::memory_order_acquire);
#endif
}

/// A coherent write, without order.
template <AtomicWord T>
MOELINK_DEVICE void st_relaxed_gpu(T* address, T value) {
#if MOELINK_ON_DEVICE
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
  } else {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
  }
#else
  atomic_word(address).store(value, std::memory_order_relaxed);
#endif
}

/// A coherent write that any device or the host can read, without order.
template <AtomicWord T>
MOELINK_DEVICE void st_relaxed_sys(T* address, T value) {
#if MOELINK_ON_DEVICE
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
  } else {
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
  }
#else
  atomic_word(address).store(value, std::memory_order_relaxed);
#endif
}

/// Releases all before it to acquirers in this block: costs next to nothing, where a wider scope waits for the memory.
template <AtomicWord T>
MOELINK_DEVICE void st_release_block(T* address, T value) {
#if MOELINK_ON_DEVICE
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.release.cta.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
  } else {
    asm volatile("st.release.cta.b64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
  }
#else
  atomic_word(address).store(value, std::memory_order_release);
#endif
}

/// Releases all before it to acquirers on this device.
template <AtomicWord T>
MOELINK_DEVICE void st_release_gpu(T* address, T value) {
#if MOELINK_ON_DEVICE
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
  } else {
    asm volatile("st.release.gpu.global.b64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
  }
#else
  atomic_word(address).store(value, std::memory_order_release);
#endif
}

/// Releases all before it to acquirers anywhere. For ordinary stores only: bulk copies are waited for first.
template <AtomicWord T>
MOELINK_DEVICE void st_release_sys(T* address, T value) {
#if MOELINK_ON_DEVICE
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.release.sys.global.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
  } else {
    asm volatile("st.release.sys.global.b64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
  }
#else
  atomic_word(address).store(value, std::memory_order_release);
#endif
}

/// Two words of 64 bits, each atomic on its own.
struct alignas(16) WordPair {
  u64 first, second;
};

/// Two neighbouring words by one instruction, without order. Each is read whole; the two may be of different times.
MOELINK_DEVICE WordPair ld_relaxed_gpu_pair(const WordPair* address) {
  WordPair value{};
#if MOELINK_ON_DEVICE
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(value.first), "=l"(value.second)
               : "l"(address)
               : "memory");
#else
  value.first = atomic_word(&address->first).load(std::memory_order_relaxed);
  value.second = atomic_word(&address->second).load(std::memory_order_relaxed);
#endif
  return value;
}

/// Two neighbouring words by one instruction. Each is read whole; the two may be of different times. For lines that
/// carry their epoch inside: the reader compares the epoch in each word.
MOELINK_DEVICE WordPair ld_relaxed_sys_pair(const WordPair* address) {
  WordPair value{};
#if MOELINK_ON_DEVICE
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(value.first), "=l"(value.second)
               : "l"(address)
               : "memory");
#else
  value.first = atomic_word(&address->first).load(std::memory_order_relaxed);
  value.second = atomic_word(&address->second).load(std::memory_order_relaxed);
#endif
  return value;
}

/// The same; whichever of the two is the one expected, what its writer released is visible afterwards.
MOELINK_DEVICE WordPair ld_acquire_sys_pair(const WordPair* address) {
  WordPair value{};
#if MOELINK_ON_DEVICE
  asm volatile("ld.acquire.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(value.first), "=l"(value.second)
               : "l"(address)
               : "memory");
#else
  value.first = atomic_word(&address->first).load(std::memory_order_acquire);
  value.second = atomic_word(&address->second).load(std::memory_order_acquire);
#endif
  return value;
}

/// The write that ld_relaxed_sys_pair reads.
MOELINK_DEVICE void st_relaxed_sys_pair(WordPair* address, WordPair value) {
#if MOELINK_ON_DEVICE
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(address), "l"(value.first), "l"(value.second)
               : "memory");
#else
  atomic_word(&address->first).store(value.first, std::memory_order_relaxed);
  atomic_word(&address->second).store(value.second, std::memory_order_relaxed);
#endif
}

}  // namespace moelink

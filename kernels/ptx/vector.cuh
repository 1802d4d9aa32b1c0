// Sixteen bytes at once, with cache hints. No order: payload, covered by a flag (NOTE [memory order], load_store.cuh).
// Addresses are multiples of 16, in global memory. On the host each is a plain copy.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

/// A plain load: the compiler may move it, caches keep it. Legal for any memory, also shared.
MOELINK_DEVICE Vec16 ld_v4(const void* address) {
#if MOELINK_ON_DEVICE
  const uint4 v = *static_cast<const uint4*>(address);
  return {v.x, v.y, v.z, v.w};
#else
  return *static_cast<const Vec16*>(address);
#endif
}

/// A load that leaves no trace in L1: data read once, such as rows that others have written. After an acquire it sees
/// what was released.
MOELINK_DEVICE Vec16 ld_v4_once(const void* address) {
#if MOELINK_ON_DEVICE
  Vec16 v;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
#else
  return *static_cast<const Vec16*>(address);
#endif
}

/// As ld_v4_once, through the non-coherent path: only for memory that nobody writes while the kernel runs, never for
/// what a peer or another block writes. Not moved before a wait, since both are volatile.
MOELINK_DEVICE Vec16 ld_nc_v4_once(const void* address) {
#if MOELINK_ON_DEVICE
  Vec16 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
#else
  return *static_cast<const Vec16*>(address);
#endif
}

/// A plain store. Legal for any memory, also shared.
MOELINK_DEVICE void st_v4(void* address, const Vec16& value) {
#if MOELINK_ON_DEVICE
  *static_cast<uint4*>(address) = uint4{value.x, value.y, value.z, value.w};
#else
  *static_cast<Vec16*>(address) = value;
#endif
}

/// A store of data that this device does not read soon: first to be evicted.
MOELINK_DEVICE void st_v4_streaming(void* address, const Vec16& value) {
#if MOELINK_ON_DEVICE
  asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
#else
  *static_cast<Vec16*>(address) = value;
#endif
}

/// A store that does not linger in L1: rows for peers.
MOELINK_DEVICE void st_v4_no_allocate(void* address, const Vec16& value) {
#if MOELINK_ON_DEVICE
  asm volatile("st.global.L1::no_allocate.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
#else
  *static_cast<Vec16*>(address) = value;
#endif
}

}  // namespace moelink

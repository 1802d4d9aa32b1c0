// Sixteen bytes at once, or as many as a thread can move, with cache hints. No order: payload, covered by a flag (NOTE
// [memory order], load_store.cuh). Addresses are multiples of 16, in global memory. On the host each is a plain copy.
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

/// A value that all threads want, in memory that nobody writes while the kernel runs. Of a plain load the compiler
/// knows that it gives all the same, and moves it into a uniform register at once, which waits; this one is waited for
/// where it is used.
MOELINK_DEVICE float ld_nc_shared_by_all(const float* address) {
#if MOELINK_ON_DEVICE
  float value;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(address));
  return value;
#else
  return *address;
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

/// The most that a thread moves by one access: 32 bytes on Blackwell, else 16.
#if MOELINK_ON_DEVICE && __CUDA_ARCH__ >= 1000
inline constexpr int kWideBytes = 32;
#else
inline constexpr int kWideBytes = 16;
#endif
inline constexpr int kWideVectors = kWideBytes / 16;

#if MOELINK_ON_DEVICE

/// Whether the access at `address`, with `left` bytes (a multiple of 16, above 0) to the end, is a whole wide one.
MOELINK_DEVICE bool is_wide(const void* address, i32 left) {
  return kWideVectors > 1 && left >= kWideBytes && reinterpret_cast<u64>(address) % kWideBytes == 0;
}

/// ld_nc_v4_once, ld_v4_once, st_v4 and st_v4_no_allocate of kWideVectors vectors, or of what is left before the end.
MOELINK_DEVICE void ld_nc_wide_once(const void* address, i32 left, Vec16* to) {
#if __CUDA_ARCH__ >= 1000
  if (is_wide(address, left)) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(to[0].x), "=r"(to[0].y), "=r"(to[0].z), "=r"(to[0].w), "=r"(to[1].x), "=r"(to[1].y),
                   "=r"(to[1].z), "=r"(to[1].w)
                 : "l"(address));
    return;
  }
#endif
  MOELINK_UNROLL
  for (int i = 0; i < kWideVectors; ++i) {
    if (i == 0 || left > i * 16) to[i] = ld_nc_v4_once(static_cast<const u8*>(address) + i * 16);
  }
}
MOELINK_DEVICE void ld_wide_once(const void* address, i32 left, Vec16* to) {
#if __CUDA_ARCH__ >= 1000
  if (is_wide(address, left)) {
    asm volatile("ld.global.L1::no_allocate.v8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(to[0].x), "=r"(to[0].y), "=r"(to[0].z), "=r"(to[0].w), "=r"(to[1].x), "=r"(to[1].y),
                   "=r"(to[1].z), "=r"(to[1].w)
                 : "l"(address)
                 : "memory");
    return;
  }
#endif
  MOELINK_UNROLL
  for (int i = 0; i < kWideVectors; ++i) {
    if (i == 0 || left > i * 16) to[i] = ld_v4_once(static_cast<const u8*>(address) + i * 16);
  }
}
MOELINK_DEVICE void st_wide(void* address, i32 left, const Vec16* from) {
#if __CUDA_ARCH__ >= 1000
  if (is_wide(address, left)) {
    asm volatile("st.global.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(address), "r"(from[0].x),
                 "r"(from[0].y), "r"(from[0].z), "r"(from[0].w), "r"(from[1].x), "r"(from[1].y), "r"(from[1].z),
                 "r"(from[1].w)
                 : "memory");
    return;
  }
#endif
  MOELINK_UNROLL
  for (int i = 0; i < kWideVectors; ++i) {
    if (i == 0 || left > i * 16) st_v4(static_cast<u8*>(address) + i * 16, from[i]);
  }
}
MOELINK_DEVICE void st_wide_no_allocate(void* address, i32 left, const Vec16* from) {
#if __CUDA_ARCH__ >= 1000
  if (is_wide(address, left)) {
    asm volatile("st.global.L1::no_allocate.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(address),
                 "r"(from[0].x), "r"(from[0].y), "r"(from[0].z), "r"(from[0].w), "r"(from[1].x), "r"(from[1].y),
                 "r"(from[1].z), "r"(from[1].w)
                 : "memory");
    return;
  }
#endif
  MOELINK_UNROLL
  for (int i = 0; i < kWideVectors; ++i) {
    if (i == 0 || left > i * 16) st_v4_no_allocate(static_cast<u8*>(address) + i * 16, from[i]);
  }
}

#endif

}  // namespace moelink

// The one header that everything on a device rests on: fixed-width integers and function qualifiers, for g++, nvcc and
// NVRTC alike (NVRTC has no <cstdint>, and heavy headers cost seconds of compile time).
#pragma once

#if defined(__CUDACC__)
#define MOELINK_DEVICE __device__ __forceinline__
#define MOELINK_COLD __device__ __noinline__ inline
#define MOELINK_ON_DEVICE 1
#define MOELINK_UNROLL _Pragma("unroll")
#define MOELINK_NO_UNROLL _Pragma("unroll 1")
#else
#define MOELINK_DEVICE inline
#define MOELINK_COLD [[gnu::noinline, gnu::cold]] inline
#define MOELINK_ON_DEVICE 0
#define MOELINK_UNROLL
#define MOELINK_NO_UNROLL
#endif

namespace moelink {

// The same types as std::int32_t, std::int64_t, ... on LP64 Linux, so that pointers convert without casts.
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;
static_assert(sizeof(i64) == 8 && sizeof(u64) == 8, "moelink supports LP64 platforms only");

/// Sixteen bytes, moved by one access.
struct alignas(16) Vec16 {
  u32 x, y, z, w;
};

/// Largest top-k; bounds arrays on the host, where a spec is a run-time value.
inline constexpr int kMaxTopK = 32;
/// Largest number of experts.
inline constexpr int kMaxExperts = 16384;

template <class T>
MOELINK_DEVICE constexpr T min_of(T a, T b) {
  return b < a ? b : a;
}
template <class T>
MOELINK_DEVICE constexpr T max_of(T a, T b) {
  return a < b ? b : a;
}
template <class T>
MOELINK_DEVICE constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
template <class T>
MOELINK_DEVICE constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

}  // namespace moelink

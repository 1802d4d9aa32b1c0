// Multicast memory (NVLS): one instruction reads and sums, or writes, the same offset on every device of a multicast
// object. Device only; `address` lies in the multicast mapping and is a multiple of 16. sm_90 and later. Sums of 16-bit
// types are formed in fp32 by the switch, in an order of its own: equal on all ranks, not from run to run.
#pragma once

#include "moelink/protocol/element.hpp"
#include "moelink/protocol/types.hpp"

#if MOELINK_ON_DEVICE

namespace moelink {

/// Sixteen bytes of elements E, summed over all devices. Relaxed at system scope.
template <Element E>
MOELINK_DEVICE Vec16 multimem_ld_reduce_add_relaxed_sys(const void* address) {
  Vec16 v;
  if constexpr (E == Element::bfloat16) {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
  } else if constexpr (E == Element::float16) {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
  } else {
    static_assert(E == Element::float32, "multicast sums exist for bf16, fp16 and fp32");
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
  }
  return v;
}

/// Sixteen bytes to every device. Relaxed at system scope.
MOELINK_DEVICE void multimem_st_relaxed_sys(void* address, const Vec16& value) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

/// Adds to a word of every device, and releases all before it to whoever acquires the sum, on any of them.
MOELINK_DEVICE void multimem_red_add_release_sys(u32* address, u32 addend) {
  asm volatile("multimem.red.release.sys.global.add.u32 [%0], %1;" ::"l"(address), "r"(addend) : "memory");
}

/// The same for 64 bits.
MOELINK_DEVICE void multimem_red_add_release_sys(u64* address, u64 addend) {
  asm volatile("multimem.red.release.sys.global.add.u64 [%0], %1;" ::"l"(address), "l"(addend) : "memory");
}

}  // namespace moelink

#endif

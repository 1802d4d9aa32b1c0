// Words in block scratch that warps of a block pass others by. Device only: on the host a block is one thread.
#pragma once

#include "moelink/protocol/types.hpp"

#if MOELINK_ON_DEVICE

namespace moelink {

/// Acquires what the writer of the value, in this block, released.
MOELINK_DEVICE u32 ld_acquire_cta(const u32* scratch) {
  u32 value;
  asm volatile("ld.acquire.cta.shared::cta.b32 %0, [%1];"
               : "=r"(value)
               : "r"(static_cast<u32>(__cvta_generic_to_shared(scratch)))
               : "memory");
  return value;
}

/// Releases all before it to acquirers in this block.
MOELINK_DEVICE void st_release_cta(u32* scratch, u32 value) {
  asm volatile("st.release.cta.shared::cta.b32 [%0], %1;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(scratch))),
               "r"(value)
               : "memory");
}

}  // namespace moelink

#endif

// Stand-alone fences. Only the litmus tests and wrappers of this folder use them: ThreadSanitizer does not see a fence,
// so that algorithms put their order into the accesses (load_store.cuh, atomics.cuh). A test greps for it.
#pragma once

#include "moelink/protocol/types.hpp"

namespace moelink {

#if !MOELINK_ON_DEVICE
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"  // the reason why nothing but tests may come here
#endif
#endif

/// Orders accesses before it before accesses after it, except that a later load may pass an earlier store. This device.
MOELINK_DEVICE void fence_acq_rel_gpu() {
#if MOELINK_ON_DEVICE
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
#endif
}

/// The same for all devices and the host.
MOELINK_DEVICE void fence_acq_rel_sys() {
#if MOELINK_ON_DEVICE
  asm volatile("fence.acq_rel.sys;" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
#endif
}

/// Orders everything before it before everything after it, stores before later loads included: of two threads that
/// store one word each, fence and load the other's, one sees the other's store. This device.
MOELINK_DEVICE void fence_sc_gpu() {
#if MOELINK_ON_DEVICE
  asm volatile("fence.sc.gpu;" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/// The same for all devices and the host.
MOELINK_DEVICE void fence_sc_sys() {
#if MOELINK_ON_DEVICE
  asm volatile("fence.sc.sys;" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

#if !MOELINK_ON_DEVICE
#pragma GCC diagnostic pop
#endif

/// Orders ordinary accesses before it before bulk copies after it (another proxy of the same memory), and the reverse.
/// To be used between acquiring a flag and a bulk copy of what the flag covers. On the host there is one proxy only.
MOELINK_DEVICE void fence_proxy_async() {
#if MOELINK_ON_DEVICE
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

/// Orders accesses to the same memory under two addresses (a multicast mapping and the plain one). On the host nothing.
MOELINK_DEVICE void fence_proxy_alias() {
#if MOELINK_ON_DEVICE
  asm volatile("fence.proxy.alias;" ::: "memory");
#endif
}

}  // namespace moelink

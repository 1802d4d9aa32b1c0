// Bulk copies between global and shared memory by the copy unit of an SM. Device only, sm_90 and later. Addresses and
// sizes are multiples of 16 bytes. Bulk copies go through the async proxy: what ordinary accesses of others wrote must
// be acquired and then fenced (fence_proxy_async, fence.cuh) before a bulk copy reads it.
#pragma once

#include "moelink/device/ptx/mbarrier.cuh"
#include "moelink/protocol/types.hpp"

#if MOELINK_ON_DEVICE

namespace moelink {

/// Starts a copy into this block's shared memory; its bytes count towards the phase of `barrier`, whose wait makes them
/// visible.
MOELINK_DEVICE void bulk_copy_global_to_shared(void* shared, const void* global, u32 bytes, Mbarrier* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address_of(shared)),
               "l"(global), "r"(bytes), "r"(shared_address_of(barrier))
               : "memory");
}

/// Starts a copy out of shared memory, in this thread's current group. Ordinary writes to `shared` before it need
/// fence_proxy_async in the writing threads, then a block barrier.
MOELINK_DEVICE void bulk_copy_shared_to_global(void* global, const void* shared, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address_of(shared)), "r"(bytes)
               : "memory");
}

/// Closes this thread's current group.
MOELINK_DEVICE void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until at most `kPending` of this thread's latest groups are still under way. Those before are complete:
/// written, and visible to this thread, so that a release store after it covers them. Only the issuing thread can wait.
template <int kPending>
MOELINK_DEVICE void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Waits until their sources have been read, so that the shared memory can be used again. Says nothing about what has
/// been written: never before a flag.
template <int kPending>
MOELINK_DEVICE void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace moelink

#endif

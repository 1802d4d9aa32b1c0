// Barriers in shared memory that count arrivals and bytes of bulk copies. Device only, sm_90 and later.
#pragma once

#include "moelink/protocol/types.hpp"

#if MOELINK_ON_DEVICE

namespace moelink {

/// A barrier: a word of shared memory, opaque.
struct alignas(8) Mbarrier {
  u64 state;
};

/// The 32-bit address of shared memory that instructions take.
MOELINK_DEVICE u32 shared_address_of(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

/// By one thread, once: phase 0 ends after `arrivals` arrivals and all announced bytes. Others may use it after
/// fence_mbarrier_init and a block barrier.
MOELINK_DEVICE void mbarrier_init(Mbarrier* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address_of(barrier)), "r"(arrivals) : "memory");
}

/// Makes initialised barriers visible to bulk copies (the async proxy) and the cluster.
MOELINK_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// By one thread, before the memory becomes something else.
MOELINK_DEVICE void mbarrier_invalidate(Mbarrier* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address_of(barrier)) : "memory");
}

/// Arrives, and announces `bytes` that bulk copies will bring in this phase. Releases to the block.
MOELINK_DEVICE void mbarrier_arrive_expect_tx(Mbarrier* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address_of(barrier)),
               "r"(bytes)
               : "memory");
}

/// Arrives. Releases to the block.
MOELINK_DEVICE void mbarrier_arrive(Mbarrier* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address_of(barrier)) : "memory");
}

/// Whether the phase of this parity has ended, without waiting. Acquires what arrived, if so.
MOELINK_DEVICE bool mbarrier_test_parity(Mbarrier* barrier, u32 parity) {
  u32 ended;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(ended)
      : "r"(shared_address_of(barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}

/// Whether the phase of this parity has ended; may wait for a while that the hardware bounds. Acquires what arrived.
MOELINK_DEVICE bool mbarrier_try_wait_parity(Mbarrier* barrier, u32 parity) {
  u32 ended;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(ended)
      : "r"(shared_address_of(barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}

}  // namespace moelink

#endif

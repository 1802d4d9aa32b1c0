// What kernels and the proxy agree on: how a kernel hands over a put, and where it sees that one has arrived. The
// proxy's side is transports/proxy, the kernels' kernels/put; the order of memory accesses is NOTE [remote visibility]
// in kernels/put/hand_over.cuh.
#pragma once

#include "moelink/protocol/put_immediate.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// Phases whose chunks may be in flight together. The last value of an immediate's phase belongs to the proxies.
inline constexpr i32 kPutPhases = 3;
inline constexpr u32 kProxyPhase = kPutPhases;
static_assert(kProxyPhase < (1U << PutImmediate::kPhaseBits));

/// One put, written by a kernel and read by the proxy: a line that host and device share. Offsets count from the start
/// of a region of the channel, which is a number that all ranks agree on.
struct alignas(64) PutDescriptor {
  u64 mark = 0;  ///< ticket + 1, released last; never reset, so that a slot's last lap is not taken for this one
  u64 source_offset_bytes = 0;
  u64 target_offset_bytes = 0;
  u64 size_bytes = 0;
  u32 immediate = 0;
  u16 peer = 0;  ///< rank
  u8 source_region = 0;
  u8 target_region = 0;
};

/// Where kernels leave puts. Any number of threads write; the proxy alone reads.
struct PutRing {
  PutDescriptor* slots = nullptr;  ///< [capacity], shared by host and device; ticket t is in slot t % capacity
  u64* next_ticket = nullptr;      ///< this device's memory: tickets given out
  const u64* taken = nullptr;      ///< shared: tickets whose slots may be written again
  u64* taken_seen = nullptr;       ///< this device's memory: what `taken` was when a kernel last looked
  u64 capacity = 0;
};

/// Who carries puts on where a thread of the host waits for them. Addresses of the host; null where kernels run on a
/// device.
struct PutHelper {
  bool (*help)(void* proxy) = nullptr;  ///< one round of the proxy's work: whether there was any
  void* proxy = nullptr;
};

/// One Exchange's way to remote ranks, as kernels see it. Part of kernel arguments; owns nothing (PutChannel does).
struct PutChannelView {
  PutRing ring;
  u32 exchange = 0;
  i32 num_ranks = 0;
  i32 max_chunks = 0;            ///< of one source in one phase
  u64* handed_over = nullptr;    ///< [kPutPhases], this device's memory: puts left in the ring so far
  const u64* sent = nullptr;     ///< [kPutPhases], shared: of these, those whose source may be written again
  const u64* arrived = nullptr;  ///< [kPutPhases][num_ranks][max_chunks], shared: epoch that arrived last; only grows
  PutHelper helper;

  /// The flag of one chunk: once it is at least e, the chunk of epoch e is here, and visible to who acquired the flag.
  MOELINK_DEVICE constexpr const u64* arrival_flag(u32 phase, i32 source, i32 chunk) const {
    return arrived + (static_cast<i64>(phase) * num_ranks + source) * max_chunks + chunk;
  }
};

}  // namespace moelink

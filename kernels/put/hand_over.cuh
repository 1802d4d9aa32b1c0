// How a kernel gives a chunk to the proxy, and how it learns of chunks that arrived.
//
// NOTE [remote visibility]. Bytes go from a kernel to a remote kernel through six hands. Each takes over by acquiring
// what the one before released:
//  1. The block that packed a chunk: ordinary stores into the staging region, then a barrier of the block, or one in
//     its scratch (row_pump.cuh). If it used bulk copies into the region, each issuing thread has waited for their
//     completion.
//  2. Its one thread that writes the descriptor: takes a ticket, waits until the slot is free (acquires `taken`, which
//     the proxy releases after its last read of the slot), writes the fields, and releases `mark` at system scope. A
//     release covers all that the thread has observed: after the barrier, the whole block's stores. So the chunk
//     is visible to the CPU and, over PCIe, to the NIC before the mark is.
//  3. The proxy acquires `mark`, reads the fields, and rings the NIC's doorbell, which orders itself after what the CPU
//     has acquired.
//  4. The transport: the payload is visible before its immediate is reported, and nothing else is promised (NOTE
//     [unordered puts], transports/put.hpp).
//  5. The proxy of the receiver: where the NIC writes GPU memory and the platform does not order these writes with what
//     the CPU does afterwards, it flushes them (transports/proxy/visibility.hpp). Then it releases the flag, in memory
//     that host and device share.
//  6. The kernel acquires the flag at system scope (wait_until), then a block barrier, then reads the payload: not
//     through the non-coherent cache, and by a bulk copy only behind a proxy fence. Where a thread repeats flags in the
//     device's memory (relay_flags), it acquires them so, and releases the copy that others acquire.
// Staging is written again only after `sent` has caught up with `handed_over` for its phase (wait_until_sent): a NIC
// may read the source late, and once more when a packet was lost.
#pragma once

#include "moelink/device/ptx/atomics.cuh"
#include "moelink/device/ptx/load_store.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/put_channel.hpp"

namespace moelink {

/// A piece of a call that travels as one put.
struct ChunkPut {
  i32 peer = 0;  ///< rank that gets it
  u32 phase = 0;
  u64 epoch = 0;
  i32 chunk = 0;          ///< below max_chunks; each at most once for each peer, phase and epoch
  i32 source_region = 0;  ///< where it was packed
  i32 target_region = 0;  ///< where it goes, at the peer
  i64 source_offset_bytes = 0;
  i64 target_offset_bytes = 0;
  i64 size_bytes = 0;  ///< 0: only the news that it is there
};

/// One round of the proxy's work, by a thread of the host that has something for it or waits for it: whether there was
/// any. Where ranks have fewer processors than threads, waking the proxy's thread for each step, and this one after it,
/// would be most of the time. On a device, and where the proxy has a processor of its own: nothing.
MOELINK_DEVICE bool help_proxy(const PutChannelView& channel) {
  return !MOELINK_ON_DEVICE && channel.helper.help != nullptr && channel.helper.help(channel.helper.proxy);
}

/// One look of a wait for what the proxy brings; helps it as long as there is work and look(seen) does not come true.
template <class Look>
MOELINK_DEVICE bool look_and_help(const PutChannelView& channel, Look&& look, u64& seen) {
  constexpr int kMostRounds = 16;  // then wait_until() looks for faults, however much there is to do
  bool is_there = look(seen);
  for (int round = 0; !is_there && round < kMostRounds && help_proxy(channel); ++round) is_there = look(seen);
  return is_there;
}

/// Waits until a word that the proxy writes has reached what.expected, and helps it.
MOELINK_DEVICE bool wait_for_proxy(const PutChannelView& channel, const FaultContext& context, const WaitFor& what,
                                   const u64* word) {
  const auto look = [&](u64& seen) {
    seen = ld_acquire_sys(word);
    return seen >= what.expected;
  };
  return wait_until(context, what, [&](u64& seen) { return look_and_help(channel, look, seen); });
}

/// Waits until the ring's slot of a ticket may be written. The proxy's count may be a trip over PCIe away: one look at
/// it is good for all tickets that it allows, whoever looked (acquired from the proxy, released to others here).
MOELINK_DEVICE bool wait_for_slot(const PutChannelView& channel, const FaultContext& context, u64 ticket, u64 epoch) {
  const PutRing& ring = channel.ring;
  if (ticket < ring.capacity) return true;
  const WaitFor what{.phase = FaultPhase::proxy, .epoch = epoch, .expected = ticket - ring.capacity + 1};
  if (ld_acquire_gpu(ring.taken_seen) >= what.expected) return true;
  u64 taken = 0;
  const auto look = [&](u64& seen) {
    seen = taken = ld_acquire_sys(ring.taken);
    return seen >= what.expected;
  };
  if (!wait_until(context, what, [&](u64& seen) { return look_and_help(channel, look, seen); })) return false;
  st_release_gpu(ring.taken_seen, taken);
  return true;
}

/// By one thread, after a barrier behind all stores to the chunk. False if the deadline passed while the ring was full,
/// or there is a fault: then leave.
MOELINK_DEVICE bool hand_over(const PutChannelView& channel, const FaultContext& context, const ChunkPut& put) {
  const PutRing& ring = channel.ring;
  const u64 ticket = atom_add_relaxed_gpu(ring.next_ticket, u64{1});
  if (!wait_for_slot(channel, context, ticket, put.epoch)) return false;
  PutDescriptor& slot = ring.slots[ticket % ring.capacity];
  slot.source_offset_bytes = static_cast<u64>(put.source_offset_bytes);
  slot.target_offset_bytes = static_cast<u64>(put.target_offset_bytes);
  slot.size_bytes = static_cast<u64>(put.size_bytes);
  slot.immediate = PutImmediate{.exchange = channel.exchange,
                                .phase = put.phase,
                                .epoch_low = PutImmediate::low_of(put.epoch),
                                .chunk = static_cast<u32>(put.chunk)}
                       .packed();
  slot.peer = static_cast<u16>(put.peer);
  slot.source_region = static_cast<u8>(put.source_region);
  slot.target_region = static_cast<u8>(put.target_region);
  red_add_relaxed_gpu(channel.handed_over + put.phase, u64{1});
  st_release_sys(&slot.mark, ticket + 1);
  help_proxy(channel);
  return true;
}

/// The same by all threads of a block that packed the chunk. Returns the same everywhere.
template <class Exec>
MOELINK_DEVICE bool hand_over_block(const Exec& ex, const PutChannelView& channel, const FaultContext& context,
                                    const ChunkPut& put) {
  ex.sync_block();
  const bool is_broken = ex.thread() == 0 && !hand_over(channel, context, put);
  return !ex.sync_block_or(is_broken);
}

/// Waits until the chunk of `epoch` from `source` is here. By one thread, as wait_until(); then a block barrier.
MOELINK_DEVICE bool wait_for_chunk(const PutChannelView& channel, const FaultContext& context, FaultPhase where,
                                   u32 phase, i32 source, i32 chunk, u64 epoch) {
  const WaitFor what{.phase = where, .peer = source, .epoch = epoch, .expected = epoch};
  return wait_for_proxy(channel, context, what, channel.arrival_flag(phase, source, chunk));
}

/// Waits until every put that earlier launches handed over in `phase` needs its source no longer. By one thread, before
/// the block barrier behind which staging of this phase is written.
MOELINK_DEVICE bool wait_until_sent(const PutChannelView& channel, const FaultContext& context, u32 phase, u64 epoch) {
  const u64 handed_over = ld_relaxed_gpu(channel.handed_over + phase);
  const WaitFor what{.phase = FaultPhase::proxy, .epoch = epoch, .expected = handed_over};
  return wait_for_proxy(channel, context, what, channel.sent + phase);
}

/// Flags of which every `step`-th is one thread's.
struct FlagRun {
  i32 first = 0;
  i32 end = 0;
  i32 step = 1;
};

/// Copies flags of host memory, a look at which costs a GPU a trip over PCIe, into this device's memory as they come,
/// until each of `run` has reached what.expected. By one thread; others then wait for the copies at gpu scope: what
/// this thread has acquired of the proxy its release passes on. One loop for all flags, so that no thread of a warp
/// holds up what another has seen. The deadline is that of the run. False on a fault.
MOELINK_DEVICE bool relay_flags(const PutChannelView& channel, const FaultContext& context, const WaitFor& what,
                                const u64* from, u64* to, const FlagRun& run) {
  i32 next = run.first;
  const auto look = [&](u64& seen) {
    seen = ld_acquire_sys(from + next);
    if (seen < what.expected) return false;
    st_release_gpu(to + next, what.expected);
    next += run.step;
    return next >= run.end;
  };
  return next >= run.end || wait_until(context, what, [&](u64& seen) { return look_and_help(channel, look, seen); });
}

/// The same for `count` neighbouring flags of a source, by one warp (on the host: one thread).
template <class Exec>
MOELINK_DEVICE bool relay_arrivals(const Exec& ex, const PutChannelView& channel, const FaultContext& context,
                                   FaultPhase where, i32 source, const u64* from, u64* to, i32 count, u64 epoch) {
  const WaitFor what{.phase = where, .peer = source, .epoch = epoch, .expected = epoch};
  return relay_flags(channel, context, what, from, to, {.first = ex.lane(), .end = count, .step = Exec::kWarpSize});
}

}  // namespace moelink

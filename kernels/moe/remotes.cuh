// Ranks that cannot be stored to: chunks that are packed for them, and chunks that come from them.
//
// NOTE [pieces of chunks]. Several blocks pack one chunk, and none waits for another. Each adds one to the chunk's
// counter for each piece it has packed; one block, the keeper, subtracts how many there are once it knows. Whoever
// makes the counter zero hands the chunk over; so it is zero again for the next call. It cannot be zero early: before
// the keeper has come it only counts up from zero, and is below zero afterwards until the last piece. Adds are
// acquire-release at gpu scope behind a block barrier each: the last one has all pieces, and the number of slots that
// the keeper wrote, before it, and passes them on by the release of hand_over() (NOTE [remote visibility],
// put/hand_over.cuh).
#pragma once

#include "moelink/device/put/hand_over.cuh"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// What travels in slots in one phase.
struct RemoteRows {
  u32 phase;
  u64 epoch;
  i64 send_offset_bytes;     ///< of slot 0 in a remote's part of the region
  i64 receive_offset_bytes;  ///< likewise, at the remote
  i64 slot_bytes;
  const i32* num_slots;  ///< [num_ranks]: slots used, by rank
};

/// `S` is a spec with has_remotes. Without, all of this is gone when the kernel is compiled.
template <class S>
class Remotes {
 public:
  MOELINK_DEVICE Remotes(S spec, const RemoteArgs& args) : spec_(spec), args_(args) {}

  /// Which remote a rank is; -1: its memory is mapped.
  [[nodiscard]] MOELINK_DEVICE i32 number(i32 rank) const {
    return spec_().has_remotes ? args_.routes[rank].remote : -1;
  }
  [[nodiscard]] MOELINK_DEVICE bool has(i32 rank) const { return number(rank) >= 0; }
  /// Which regions of symmetric memory belong to a rank that is no remote.
  [[nodiscard]] MOELINK_DEVICE i32 peer(i32 rank) const { return spec_().has_remotes ? args_.routes[rank].peer : rank; }

  /// What this rank packs for a remote, and what a remote has put here, by number(), from the start of its part.
  [[nodiscard]] MOELINK_DEVICE u8* packed(i32 remote) const {
    return args_.send + remote * args_.send_layout.pitch_bytes;
  }
  [[nodiscard]] MOELINK_DEVICE u8* arrived(i32 remote) const {
    return args_.receive + remote * args_.receive_layout.pitch_bytes;
  }

  /// Slots of a chunk to or from a remote.
  [[nodiscard]] MOELINK_DEVICE i32 log2_slots_per_chunk() const { return args_.log2_slots_per_chunk; }
  [[nodiscard]] MOELINK_DEVICE i32 chunk_of(i32 slot) const { return slot >> args_.log2_slots_per_chunk; }
  [[nodiscard]] MOELINK_DEVICE i32 chunks_of(i32 num_slots) const {
    return (num_slots + (1 << args_.log2_slots_per_chunk) - 1) >> args_.log2_slots_per_chunk;
  }

  // Sending.

  /// By the block, before it packs anything of `phase` in this launch: waits until all that was packed before has been
  /// sent. False, for all threads, after a fault.
  template <class Exec>
  [[nodiscard]] MOELINK_DEVICE bool wait_until_free(const Exec& ex, const FaultContext& fault, u32 phase,
                                                    u64 epoch) const {
    if (!spec_().has_remotes) return true;
    if (!has_relay()) return !ex.sync_block_or(!wait_until_all_sent(ex, fault, epoch));
    const WaitFor what{.phase = FaultPhase::proxy, .epoch = epoch, .expected = epoch};
    const bool failed = ex.thread() == 0 && !wait_for_proxy(args_.channel, fault, what, args_.free + phase);
    return !ex.sync_block_or(failed);
  }

  /// By the relay: waits for the same, and tells the other blocks. False, for all threads, after a fault.
  template <class Exec>
  [[nodiscard]] MOELINK_DEVICE bool relay_free(const Exec& ex, const FaultContext& fault, u32 phase, u64 epoch) const {
    if (ex.sync_block_or(!wait_until_all_sent(ex, fault, epoch))) return false;
    if (ex.thread() == 0) st_release_gpu(args_.free + phase, epoch);
    return true;
  }

  /// By one block, a block barrier after `size_bytes` of header were packed for every remote: hands them over.
  template <class Exec>
  MOELINK_DEVICE void put_headers(const Exec& ex, const FaultContext& fault, u32 phase, u64 epoch,
                                  i64 size_bytes) const {
    if (!spec_().has_remotes) return;
    const bool is_dispatch = phase == kDispatchPuts;
    for (i32 rank = ex.thread(); rank < spec_().num_ranks; rank += ex.num_threads()) {
      const i32 remote = number(rank);
      if (remote < 0) continue;
      const auto offset = [&](const RemoteLayout& layout) {
        return is_dispatch ? layout.dispatch_header.offset_bytes : layout.combine_header.offset_bytes;
      };
      put(fault, rank, phase, epoch, kHeaderChunk, offset(args_.send_layout), offset(args_.receive_layout), size_bytes);
    }
  }

  /// By one block, the keeper: how many pieces the chunks of each remote have, `pieces_per_slot` for each of their
  /// slots. rows.num_slots is written, and a block barrier passed.
  template <class Exec>
  MOELINK_DEVICE void expect_pieces(const Exec& ex, const FaultContext& fault, const RemoteRows& rows,
                                    i32 pieces_per_slot) const {
    if (!spec_().has_remotes) return;
    for (i32 rank = 0; rank < spec_().num_ranks; ++rank) {
      if (!has(rank)) continue;
      for (i32 chunk = ex.thread(); chunk < chunks_of(rows.num_slots[rank]); chunk += ex.num_threads()) {
        add_pieces(fault, rows, rank, chunk, -slots_in(rows, rank, chunk) * pieces_per_slot);
      }
    }
  }

  /// By one thread, a block barrier after the piece was packed.
  MOELINK_DEVICE void add_piece(const FaultContext& fault, const RemoteRows& rows, i32 rank, i32 slot) const {
    add_pieces(fault, rows, rank, chunk_of(slot), 1);
  }

  /// By one thread that knows that a whole chunk of slots is packed.
  MOELINK_DEVICE void put_chunk(const FaultContext& fault, const RemoteRows& rows, i32 rank, i32 chunk) const {
    const i64 first_byte = (static_cast<i64>(chunk) << args_.log2_slots_per_chunk) * rows.slot_bytes;
    put(fault, rank, rows.phase, rows.epoch, kFirstRowChunk + chunk, rows.send_offset_bytes + first_byte,
        rows.receive_offset_bytes + first_byte, slots_in(rows, rank, chunk) * rows.slot_bytes);
  }

  // Receiving.

  /// Whether a block of this launch repeats what the proxy says.
  [[nodiscard]] MOELINK_DEVICE bool has_relay() const { return args_.relayed != nullptr; }

  /// The flag that reaches the epoch once the chunk with a slot is here; to be acquired at system scope.
  [[nodiscard]] MOELINK_DEVICE const u64* row_flag(u32 phase, i32 source, i32 slot) const {
    return flag(phase, source, kFirstRowChunk + chunk_of(slot));
  }
  /// By one thread: waits for the flag of any rank. False: a fault.
  [[nodiscard]] MOELINK_DEVICE bool wait_for_flag(const FaultContext& fault, const WaitFor& what,
                                                  const u64* flag) const {
    return spec_().has_remotes ? wait_for_proxy(args_.channel, fault, what, flag)
                               : wait_until_reached_sys(fault, what, flag);
  }
  /// By one thread: waits for a chunk, numbered as in the channel. False: a fault.
  [[nodiscard]] MOELINK_DEVICE bool wait(const FaultContext& fault, u32 phase, i32 source, i32 chunk, u64 epoch) const {
    return wait_for_proxy(args_.channel, fault, wait_for(phase, source, epoch), flag(phase, source, chunk));
  }

  /// The same at the proxy's own flag. Lanes of a warp that wait for one chunk are one look.
  [[nodiscard]] MOELINK_DEVICE bool wait_for_host(const FaultContext& fault, u32 phase, i32 source, i32 chunk,
                                                  u64 epoch) const {
    return wait_for_proxy(args_.channel, fault, wait_for(phase, source, epoch),
                          args_.channel.arrival_flag(phase, source, chunk));
  }

  /// By the relay: repeats the flags of headers and of all chunks of slots, of which a remote has num_slots(rank), as
  /// they come. After a fault it leaves.
  template <class Exec, class NumSlots>
  MOELINK_DEVICE void relay_chunks(const Exec& ex, const FaultContext& fault, u32 phase, u64 epoch,
                                   NumSlots&& num_slots) const {
    // Neighbouring flags are one look of a warp; and every remote has threads of its own if there are enough.
    const i32 threads = min_of(max_of(ex.num_threads() / args_.num_remotes, 1), Exec::kWarpSize);
    for (i32 i = ex.thread(); i < args_.num_remotes * threads; i += ex.num_threads()) {
      const i32 source = args_.sources[args_.num_peers + i / threads];
      const u64* const from = args_.channel.arrival_flag(phase, source, 0);
      const FlagRun run{.first = i % threads, .end = kFirstRowChunk + chunks_of(num_slots(source)), .step = threads};
      if (!relay_flags(args_.channel, fault, wait_for(phase, source, epoch), from,
                       args_.relayed + (from - args_.channel.arrived), run)) {
        return;
      }
    }
  }

 private:
  MOELINK_DEVICE static WaitFor wait_for(u32 phase, i32 source, u64 epoch) {
    const FaultPhase where = phase == kDispatchPuts ? FaultPhase::dispatch_receive : FaultPhase::combine_receive;
    return {.phase = where, .peer = source, .epoch = epoch, .expected = epoch};
  }

  /// Where blocks of this launch look for a chunk, numbered as in the channel.
  [[nodiscard]] MOELINK_DEVICE const u64* flag(u32 phase, i32 source, i32 chunk) const {
    const u64* const flag = args_.channel.arrival_flag(phase, source, chunk);
    return has_relay() ? args_.relayed + (flag - args_.channel.arrived) : flag;
  }

  /// By the block: false, in threads that know, after a fault.
  template <class Exec>
  [[nodiscard]] MOELINK_DEVICE bool wait_until_all_sent(const Exec& ex, const FaultContext& fault, u64 epoch) const {
    bool good = true;
    for (i32 phase = ex.thread(); phase < kRowPhases; phase += ex.num_threads()) {
      good = good && wait_until_sent(args_.channel, fault, static_cast<u32>(phase), epoch);
    }
    return good;
  }

  [[nodiscard]] MOELINK_DEVICE i32 slots_in(const RemoteRows& rows, i32 rank, i32 chunk) const {
    const i32 first = chunk << args_.log2_slots_per_chunk;
    return min_of(1 << args_.log2_slots_per_chunk, rows.num_slots[rank] - first);
  }

  MOELINK_DEVICE void add_pieces(const FaultContext& fault, const RemoteRows& rows, i32 rank, i32 chunk,
                                 i32 count) const {
    u32* const pieces = args_.pieces + static_cast<i64>(number(rank)) * args_.channel.max_chunks + chunk;
    const u32 before = atom_add_acq_rel_gpu(pieces, static_cast<u32>(count));
    if (before + static_cast<u32>(count) == 0) put_chunk(fault, rows, rank, chunk);
  }

  /// A put that cannot be handed over is a fault, which ends every later wait.
  MOELINK_DEVICE void put(const FaultContext& fault, i32 rank, u32 phase, u64 epoch, i32 chunk, i64 source_offset_bytes,
                          i64 target_offset_bytes, i64 size_bytes) const {
    const RankRoute route = args_.routes[rank];
    hand_over(args_.channel, fault,
              {.peer = rank,
               .phase = phase,
               .epoch = epoch,
               .chunk = chunk,
               .source_region = kSendRegion,
               .target_region = kReceiveRegion,
               .source_offset_bytes = route.remote * args_.send_layout.pitch_bytes + source_offset_bytes,
               .target_offset_bytes = route.there * args_.receive_layout.pitch_bytes + target_offset_bytes,
               .size_bytes = size_bytes});
  }

  S spec_;
  const RemoteArgs& args_;
};

}  // namespace moelink

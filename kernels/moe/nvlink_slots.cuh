// Slots: where a source's tokens lie at a destination, the flags that say so, and the records that travel with the
// rows.
//
// With remotes (moe/remotes.cuh) what is for them is packed in a region that looks the same, and their chunks have
// flags of the channel.
//
// Ordering: a sender's block stores rows and records, passes a block barrier and releases the flag; a receiver acquires
// the flag and passes a block barrier before it reads. Nothing here is read through the non-coherent path.
#pragma once

#include "moelink/device/moe/remotes.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// Addresses of slots at any rank. `S` is a spec with num_ranks, tp_size and top_k.
template <class S>
class Slots {
 public:
  MOELINK_DEVICE Slots(S spec, const NvlinkDispatchArgs& args)
      : spec_(spec), args_(args), remotes_(spec, args.remote) {}

  /// A slot's row; its scales lie behind it, at `row_bytes` of the payload. Of a remote holder: where this rank packs
  /// it.
  [[nodiscard]] MOELINK_DEVICE u8* row(i32 holder, i32 group, i32 slot) const {
    if (is_remote(holder, group)) return remote_slot(holder, group, slot) + remote_row_offset(spec_().top_k);
    return at(holder, args_.layout.slot_rows.offset_bytes) + index(group, slot) * args_.shape.row_pitch_bytes;
  }
  [[nodiscard]] MOELINK_DEVICE u8* record(i32 holder, i32 group, i32 slot) const {
    if (is_remote(holder, group)) return remote_slot(holder, group, slot);
    return at(holder, args_.layout.slot_records.offset_bytes) + index(group, slot) * slot_record_bytes(spec_().top_k);
  }
  /// The flag of one part of the slots that share a flag with `slot`, as `format`, the sender's, says. Between peers.
  [[nodiscard]] MOELINK_DEVICE u64* flag(i32 holder, i32 group, i32 slot, i32 part, const WireFormat& format) const {
    const i32 source = remotes_.peer(group) * spec_().tp_size + format.member_of_slot(slot, spec_().tp_size);
    return reinterpret_cast<u64*>(at(holder, args_.layout.dispatch_flags.offset_bytes)) +
           static_cast<i64>(source) * args_.shape.max_tokens * kMaxWireParts + format.flag_of_slot(slot, part);
  }
  /// How slots travel to a rank, if peers get them as `format` says.
  [[nodiscard]] MOELINK_DEVICE WireFormat format_to(i32 holder, WireFormat format) const {
    if (!remotes_.has(holder)) return format;
    format.log2_slots_per_flag = static_cast<u8>(remotes_.log2_slots_per_chunk());
    format.parts = 1;
    return format;
  }
  /// The slots that this rank packs, for puts of this epoch.
  [[nodiscard]] MOELINK_DEVICE RemoteRows remote_rows(u64 epoch) const {
    return {.phase = kDispatchPuts,
            .epoch = epoch,
            .send_offset_bytes = args_.remote.send_layout.slots.offset_bytes,
            .receive_offset_bytes = args_.remote.receive_layout.slots.offset_bytes,
            .slot_bytes = slot_bytes(),
            .num_slots = args_.tables.num_sent};
  }

  /// Waits until flag `part` of a slot here has this epoch. By one thread.
  [[nodiscard]] MOELINK_DEVICE bool wait(i32 group, i32 slot, i32 part, const WireFormat& format, u64 epoch) const {
    if (remotes_.has(group)) {
      const i32 chunk = kFirstRowChunk + remotes_.chunk_of(slot);
      return remotes_.wait(args_.local.fault, kDispatchPuts, group, chunk, epoch);
    }
    const i32 source = group * spec_().tp_size + format.member_of_slot(slot, spec_().tp_size);
    const WaitFor what{.phase = FaultPhase::dispatch_receive, .peer = source, .epoch = epoch, .expected = epoch};
    return remotes_.wait_for_flag(args_.local.fault, what, flag(args_.window.rank, group, slot, part, format));
  }

  [[nodiscard]] MOELINK_DEVICE const Remotes<S>& remotes() const { return remotes_; }

 private:
  MOELINK_DEVICE u8* at(i32 holder, i64 offset_bytes) const {
    return args_.window.template at<u8>(holder, offset_bytes, spec_().num_ranks);
  }
  /// Among the slots that a peer has.
  [[nodiscard]] MOELINK_DEVICE i64 index(i32 group, i32 slot) const {
    return static_cast<i64>(remotes_.peer(group)) * args_.shape.max_tokens + slot;
  }

  [[nodiscard]] MOELINK_DEVICE bool is_remote(i32 holder, i32 group) const {
    return remotes_.has(holder == args_.window.rank ? group : holder);
  }
  [[nodiscard]] MOELINK_DEVICE i64 slot_bytes() const {
    return remote_slot_bytes(spec_().row_bytes + spec_().scale_bytes, spec_().top_k);
  }
  [[nodiscard]] MOELINK_DEVICE u8* remote_slot(i32 holder, i32 group, i32 slot) const {
    if (holder == args_.window.rank) {
      return remotes_.arrived(remotes_.number(group)) + args_.remote.receive_layout.slots.offset_bytes +
             slot * slot_bytes();
    }
    return remotes_.packed(remotes_.number(holder)) + args_.remote.send_layout.slots.offset_bytes + slot * slot_bytes();
  }

  S spec_;
  const NvlinkDispatchArgs& args_;
  Remotes<S> remotes_;
};

/// A slot's record as memory: the token, then top_k entries 16 bytes on. Also as words of 32 bits, so that the lanes of
/// a warp can store neighbouring ones.
struct SlotRecord {
  static constexpr i32 kHeadBytes = 16;
  static constexpr i32 kHeadWords = kHeadBytes / 4;
  static constexpr i32 kEntryWords = sizeof(SlotEntry) / 4;
  MOELINK_DEVICE static constexpr i32 num_words(i32 top_k) { return kHeadWords + top_k * kEntryWords; }

  MOELINK_DEVICE static i32 load_token(const u8* record) { return *reinterpret_cast<const i32*>(record); }
  MOELINK_DEVICE static const SlotEntry* entries(const u8* record) {
    return reinterpret_cast<const SlotEntry*>(record + kHeadBytes);
  }
  MOELINK_DEVICE static void store_token(u8* record, i32 token) { *reinterpret_cast<i32*>(record) = token; }
  MOELINK_DEVICE static void store_entry(u8* record, i32 k, const SlotEntry& entry) {
    reinterpret_cast<SlotEntry*>(record + kHeadBytes)[k] = entry;
  }
};

}  // namespace moelink

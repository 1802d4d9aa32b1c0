// Slots: where a source's tokens lie at a destination, the flags that say so, and the records that travel with the rows.
//
// Ordering: a sender's block stores rows and records, passes a block barrier and releases the flag; a receiver acquires
// the flag and passes a block barrier before it reads. Nothing here is read through the non-coherent path.
#pragma once

#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

/// Addresses of slots at any rank. `S` is a spec with num_ranks, tp_size and top_k.
template <class S>
class Slots {
 public:
  MOELINK_DEVICE Slots(S spec, const NvlinkDispatchArgs& args) : spec_(spec), args_(args) {}

  /// A slot's row; its scales lie behind it, at `row_bytes` of the payload.
  [[nodiscard]] MOELINK_DEVICE u8* row(i32 holder, i32 group, i32 slot) const {
    return at(holder, args_.layout.slot_rows.offset_bytes) +
           (static_cast<i64>(group) * args_.shape.max_tokens + slot) * args_.shape.row_pitch_bytes;
  }
  [[nodiscard]] MOELINK_DEVICE u8* record(i32 holder, i32 group, i32 slot) const {
    return at(holder, args_.layout.slot_records.offset_bytes) +
           (static_cast<i64>(group) * args_.shape.max_tokens + slot) * slot_record_bytes(spec_().top_k);
  }
  /// The flag of one part of the slots that share a flag with `slot`, as `format`, the sender's, says.
  [[nodiscard]] MOELINK_DEVICE u64* flag(i32 holder, i32 group, i32 slot, i32 part, const WireFormat& format) const {
    const i32 source = group * spec_().tp_size + format.member_of_slot(slot, spec_().tp_size);
    return reinterpret_cast<u64*>(at(holder, args_.layout.dispatch_flags.offset_bytes)) +
           static_cast<i64>(source) * args_.shape.max_tokens * kMaxWireParts + format.flag_of_slot(slot, part);
  }

  /// Waits until flag `part` of a slot here has this epoch. By one thread.
  [[nodiscard]] MOELINK_DEVICE bool wait(i32 group, i32 slot, i32 part, const WireFormat& format, u64 epoch) const {
    const i32 source = group * spec_().tp_size + format.member_of_slot(slot, spec_().tp_size);
    const WaitFor what{.phase = FaultPhase::dispatch_receive, .peer = source, .epoch = epoch, .expected = epoch};
    return wait_until_reached_sys(args_.local.fault, what, flag(args_.window.rank, group, slot, part, format));
  }

 private:
  MOELINK_DEVICE u8* at(i32 holder, i64 offset_bytes) const {
    return args_.window.template at<u8>(holder, offset_bytes, spec_().num_ranks);
  }

  S spec_;
  const NvlinkDispatchArgs& args_;
};

/// A slot's record as memory: the token, then top_k entries 16 bytes on. Also as words of 32 bits, so that the lanes of a
/// warp can store neighbouring ones.
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

// Which rows a block of the nvlink prefill moves, batch after batch: first what it sends, then what it receives.
//
// Sending: chunks of slots, a flag each, dealt out to the sending blocks in turns over the destinations, the next rank
// first. In a launch that also receives, a token is read once for both: with the first slot that carries it away it
// also goes to its own places here. So memory is read as seldom as can be, and own rows are placed while the link is
// busy.
//
// A chunk that is put to a remote is packed like one that is stored to a peer, and handed over in place of its flag.
//
// Receiving: units of a few slots, drawn by ticket, so that no block idles while another has work: how long a unit
// takes depends on when it arrives and on how many places its rows have. First own tokens that nobody carries, then
// what peers send, in turns over them, so about in the order in which it comes, then what remotes put. A ticket's unit
// is waited for, in order; all that a block has drawn before is moved meanwhile (primitives/row_pump.cuh).
//
// So own rows, which the pump may have to quantise, come before those that have arrived, as it requires: sent ones
// before drawn ones, and a block's tickets ascend.
//
// Ordering: a lane acquires each flag at system scope, the warp meets, then it reads records; the pump fences before
// rows are read by bulk copies. Own records and tables are behind a grid barrier.
#pragma once

#include "moelink/device/moe/nvlink_places.cuh"
#include "moelink/device/moe/nvlink_slots.cuh"
#include "moelink/device/primitives/round_robin.cuh"
#include "moelink/device/primitives/row_pump.cuh"
#include "moelink/device/ptx/atomics.cuh"
#include "moelink/protocol/nvlink_prefill_scratch.hpp"

namespace moelink {

/// The finder of a RowPump. One warp calls find(); lists are in block scratch.
template <class Exec, class S>
class PrefillRows {
 public:
  /// `num_tokens`: how many there are. `send_chunks`, `receive_units`: [num_ranks], for make_lists().
  MOELINK_DEVICE PrefillRows(const Exec& ex, S spec, const NvlinkDispatchArgs& args, u64 epoch, i32 num_tokens,
                             const SourceHeaders<S>& headers, const Places<S>& places, i32* send_chunks,
                             i32* receive_units)
      : spec_(spec),
        args_(args),
        slots_(spec, args),
        headers_(headers),
        places_(places),
        epoch_(epoch),
        num_tokens_(static_cast<u32>(num_tokens)),
        group_(args.window.rank / spec().tp_size),
        member_(args.window.rank % spec().tp_size),
        num_others_(spec().num_ranks - spec().tp_size),
        carries_own_(args.sends != 0 && args.receives != 0 && num_others_ > 0),
        send_chunks_(send_chunks),
        receive_units_(receive_units),
        next_send_(ex.block()) {}

  /// By the block, when the numbers of slots are known, before find(); a block barrier is at its end.
  MOELINK_DEVICE void make_lists(const Exec& ex) {
    for (i32 i = ex.thread(); i < num_others_; i += ex.num_threads()) {
      send_chunks_[i] = args_.sends != 0 ? own_chunks(destination(i)) : 0;
    }
    for (i32 i = ex.thread(); i < num_sources(); i += ex.num_threads()) {
      receive_units_[i] = args_.receives != 0 ? ceil_div(headers_.num_slots(source(i)), kUnitSlots) : 0;
    }
    ex.sync_block();
    if (args_.receives != 0) own_slots_ = headers_.num_slots(group_);
  }

  /// By one warp: the next batch. False: there is none, or a wait was in vain.
  MOELINK_DEVICE bool find(const Exec& ex, const RowBatch& batch) {
    if (is_first_) begin(ex);
    if (next_send_ < num_send_) {
      const RoundRobin::Item item = RoundRobin(send_chunks_, num_others_).find(ex, next_send_);
      next_send_ += args_.num_senders;
      send(ex, batch, destination(item.list), item.position * spec_().tp_size + member_);
      return true;
    }
    while (!failed_) {
      if (first_ == end_ && !draw(ex)) return false;
      if (take(ex, batch)) return true;
    }
    return false;
  }

  /// By one thread, which has observed that all copies of a batch that is sent have been stored.
  MOELINK_DEVICE void raise(u64* flag, u64 value) const {
    if (spec_().has_remotes && flag == nullptr) {
      slots_.remotes().put_chunk(args_.local.fault, slots_.remote_rows(epoch_), static_cast<i32>(value >> 32U) - 1,
                                 static_cast<i32>(value));
    } else {
      st_release_sys(flag, value);
    }
  }

  /// Whether a wait was in vain. In the warp that called find().
  [[nodiscard]] MOELINK_DEVICE bool failed() const { return failed_; }

 private:
  static constexpr int kLanes = Exec::kWarpSize;
  static constexpr i32 kUnitSlots = 4;   ///< of a unit whose rows are to be moved
  static constexpr i32 kScanSlots = 32;  ///< of a unit of own tokens, nearly all of which are carried by the sending
  static_assert(kUnitSlots <= PumpScratch::kBatchRows);

  // Lists: destinations from the next group on, sources from the group before backwards; with remotes, which are
  // slower, peers first.
  MOELINK_DEVICE i32 destination(i32 list) const { return ((group_ + 1) * spec_().tp_size + list) % spec_().num_ranks; }
  MOELINK_DEVICE i32 num_sources() const { return num_others_ / spec_().tp_size; }
  MOELINK_DEVICE i32 num_near_sources() const { return spec_().has_remotes ? args_.remote.num_peers : num_sources(); }
  MOELINK_DEVICE RoundRobin near_sources() const { return RoundRobin(receive_units_, num_near_sources()); }
  MOELINK_DEVICE RoundRobin remote_sources() const {
    return RoundRobin(receive_units_ + num_near_sources(), num_sources() - num_near_sources());
  }
  MOELINK_DEVICE i32 source(i32 list) const {
    if (spec_().has_remotes) return args_.remote.sources[list];
    const i32 num_groups = num_sources() + 1;
    return (group_ + num_groups - 1 - list) % num_groups;
  }
  MOELINK_DEVICE WireFormat format_to(i32 rank) const { return slots_.format_to(rank, args_.format); }
  /// Of the chunks of slots at a rank, those that this member sends: member_, member_ + tp_size, ...
  MOELINK_DEVICE i32 own_chunks(i32 rank) const {
    const i32 log2_slots = format_to(rank).log2_slots_per_flag;
    const i32 chunks = (args_.tables.num_sent[rank] + (1 << log2_slots) - 1) >> log2_slots;
    return (chunks - member_ + spec_().tp_size - 1) / spec_().tp_size;
  }

  MOELINK_DEVICE void begin(const Exec& ex) {
    is_first_ = false;
    const bool sends = args_.sends != 0 && ex.block() < args_.num_senders;
    num_send_ = sends ? RoundRobin(send_chunks_, num_others_).total(ex) : 0;
    if (args_.receives == 0) return;
    own_unit_slots_ = carries_own_ ? kScanSlots : kUnitSlots;
    own_units_ = ceil_div(own_slots_, own_unit_slots_);
    num_near_units_ = own_units_ + near_sources().total(ex);
    num_units_ = num_near_units_ + (spec_().has_remotes ? remote_sources().total(ex) : 0);
  }

  /// A chunk that is put, for raise(); not 0.
  MOELINK_DEVICE static u64 chunk_name(i32 rank, i32 chunk) {
    return static_cast<u64>(rank + 1) << 32U | static_cast<u32>(chunk);
  }

  /// The first destination, in the order of sending, that this rank sends the token to: with it go its own rows. -1:
  /// none.
  MOELINK_DEVICE i32 carrier(i32 token) const {
    i32 carrier = -1;
    for (i32 list = num_others_ - 1; list >= 0; --list) {
      const i32 slot = args_.tables.slot_of_token[destination(list) * args_.shape.max_tokens + token];
      const bool sends = slot >= 0 && args_.format.member_of_slot(slot, spec_().tp_size) == member_;
      carrier = sends ? destination(list) : carrier;
    }
    return carrier;
  }

  MOELINK_DEVICE RowJob own_job(i32 token) const {
    const i64 at = token;
    return {.row = static_cast<const u8*>(args_.local.tokens) + at * args_.local.token_stride_bytes,
            .scales = args_.local.scales == nullptr
                          ? nullptr
                          : static_cast<const u8*>(args_.local.scales) + at * args_.local.scale_stride_bytes,
            .copy = nullptr,
            .slot = -1};
  }

  /// By one warp: one chunk to its destination.
  MOELINK_DEVICE void send(const Exec& ex, const RowBatch& batch, i32 rank, i32 chunk) const {
    const WireFormat format = format_to(rank);
    const i32 first = chunk << format.log2_slots_per_flag;
    const i32 end = min_of(first + (1 << format.log2_slots_per_flag), args_.tables.num_sent[rank]);
    i32 num_rows = 0;
    for (i32 from = first; from < end; from += kLanes) {
      const i32 slot = from + ex.lane();
      const i32 token = slot < end ? args_.tables.token_of_slot[rank * args_.shape.max_tokens + slot] : -1;
      const bool exists = static_cast<u32>(token) < num_tokens_;  // else it is the routing of a longer call
      const i32 row = num_rows + static_cast<i32>(warp_exclusive_sum(ex, exists ? 1 : 0));
      num_rows += static_cast<i32>(warp_sum(ex, exists ? 1 : 0));
      if (!exists) continue;
      RowJob job = own_job(token);
      job.copy = slots_.row(rank, group_, slot);
      if (carries_own_) {
        const i32 own_slot = args_.tables.slot_of_token[args_.window.rank * args_.shape.max_tokens + token];
        job.slot = carrier(token) == rank ? own_slot : -1;
      }
      batch.jobs[row] = job;
    }
    if (slots_.remotes().has(rank)) {
      finish(ex, batch, num_rows, group_, nullptr, chunk_name(rank, chunk));
    } else {
      finish(ex, batch, num_rows, group_, slots_.flag(rank, group_, first, 0, format), epoch_);
    }
  }

  /// By one warp: the next unit. False: none is left.
  MOELINK_DEVICE bool draw(const Exec& ex) {
    if (num_units_ == 0) return false;
    u64 ticket = 0;
    if (ex.lane() == 0) {
      // The word counts from zero in every epoch, whoever comes first.
      const u64 base = epoch_ << 32U;
      red_max_relaxed_gpu(args_.tables.tickets, base);
      ticket = atom_add_relaxed_gpu(args_.tables.tickets, u64{1}) - base;
    }
    const i64 unit = warp_broadcast(ex, static_cast<u32>(ticket), 0);
    if (unit >= num_units_) return false;
    if (unit < own_units_) {
      source_ = group_;
      first_ = static_cast<i32>(unit) * own_unit_slots_;
      end_ = min_of(first_ + own_unit_slots_, own_slots_);
    } else {
      const bool is_near = !spec_().has_remotes || unit < num_near_units_;
      const RoundRobin::Item item = is_near ? near_sources().find(ex, unit - own_units_)  //
                                            : remote_sources().find(ex, unit - num_near_units_);
      source_ = source(is_near ? item.list : item.list + num_near_sources());
      first_ = item.position * kUnitSlots;
      end_ = min_of(first_ + kUnitSlots, headers_.num_slots(source_));
    }
    return true;
  }

  /// By one warp: rows of the current unit, as many as fit a batch. False: it has none, or a wait was in vain.
  MOELINK_DEVICE bool take(const Exec& ex, const RowBatch& batch) {
    const i32 num_rows = source_ == group_ ? take_own(ex, batch) : take_arrived(ex, batch);
    if (num_rows == 0) return false;
    finish(ex, batch, num_rows, source_, nullptr, 0);
    return true;
  }

  MOELINK_DEVICE i32 take_own(const Exec& ex, const RowBatch& batch) {
    i32 num_rows = 0;
    while (first_ < end_ && num_rows < PumpScratch::kBatchRows) {
      const i32 slot = first_ + ex.lane();
      const i32 token =
          slot < end_ ? args_.tables.token_of_slot[args_.window.rank * args_.shape.max_tokens + slot] : -1;
      const bool wanted = static_cast<u32>(token) < num_tokens_ && !(carries_own_ && carrier(token) >= 0);
      const i32 row = num_rows + static_cast<i32>(warp_exclusive_sum(ex, wanted ? 1 : 0));
      const bool fits = row < PumpScratch::kBatchRows;
      if (wanted && fits) {
        batch.jobs[row] = own_job(token);
        batch.jobs[row].slot = slot;
      }
      // What did not fit, and what lies behind it, is looked at again.
      const bool done = slot < end_ && (wanted ? fits : row <= PumpScratch::kBatchRows);
      first_ += static_cast<i32>(warp_sum(ex, done ? 1 : 0));
      num_rows += static_cast<i32>(warp_sum(ex, wanted && fits ? 1 : 0));
    }
    return num_rows;
  }

  MOELINK_DEVICE i32 take_arrived(const Exec& ex, const RowBatch& batch) {
    const i32 num_rows = end_ - first_;
    const WireFormat format = headers_.format(source_);
    bool late = false;
    for (i32 i = ex.lane(); i < num_rows * format.parts && !late; i += kLanes) {
      late = !slots_.wait(source_, first_ + i / format.parts, i % format.parts, format, epoch_);
    }
    failed_ = warp_sum(ex, late ? 1 : 0) != 0;
    if (failed_) return 0;
    for (i32 i = ex.lane(); i < num_rows; i += kLanes) {
      const u8* row = slots_.row(args_.window.rank, source_, first_ + i);
      batch.jobs[i] = {.row = row,
                       .scales = args_.local.row_scales == nullptr ? nullptr : row + spec_().row_bytes,
                       .copy = nullptr,
                       .slot = first_ + i};
    }
    first_ = end_;
    return num_rows;
  }

  /// By one warp, when it has filled the jobs: all the rest of a batch. Slots are those of `group` here.
  MOELINK_DEVICE void finish(const Exec& ex, const RowBatch& batch, i32 num_rows, i32 group, u64* flag,
                             u64 value) const {
    if (ex.lane() == 0) {
      batch.head->num_rows = num_rows;
      batch.head->flag = flag;
      batch.head->value = value;
    }
    ex.sync_warp();
    for (i32 i = ex.lane(); i < num_rows * spec_().top_k; i += kLanes) {
      const i32 slot = batch.jobs[i / spec_().top_k].slot;
      if (slot < 0) {
        batch.places[i] = -1;
        continue;
      }
      const i32 k = i % spec_().top_k;
      const SlotPlace place = args_.format.reuse_routing != 0 ? place_again(group, slot, k) : place_new(group, slot, k);
      batch.places[i] = place.row;
      batch.weights[i] = place.weight;
    }
  }

  struct SlotPlace {
    i32 row;
    float weight;
  };

  /// By one thread: the place of entry k of a slot, from its record; and all that is to be known of it.
  MOELINK_DEVICE SlotPlace place_new(i32 group, i32 slot, i32 k) const {
    const u8* record = slots_.record(args_.window.rank, group, slot);
    const SlotEntry from = SlotRecord::entries(record)[k];
    const i32 token = SlotRecord::load_token(record);
    const i32 row = places_.row_of(group, from);
    if (k == 0) args_.tables.received_token[group * args_.shape.max_tokens + slot] = token;
    publish_slot_entry(args_, spec_().top_k, group, slot, token, k, row, from);
    return {row, from.weight};
  }

  /// The place that the last call found. One of another call must not reach past this call's rows.
  MOELINK_DEVICE SlotPlace place_again(i32 group, i32 slot, i32 k) const {
    const i64 entry = (group * args_.shape.max_tokens + slot) * spec_().top_k + k;
    const i32 row = args_.tables.row_of_entry[entry];
    return {row < static_cast<i32>(places_.total_rows()) ? row : -1, args_.tables.weight_of_entry[entry]};
  }

  S spec_;
  const NvlinkDispatchArgs& args_;
  Slots<S> slots_;
  const SourceHeaders<S>& headers_;
  const Places<S>& places_;
  u64 epoch_;
  u32 num_tokens_;
  i32 group_;
  i32 member_;
  i32 num_others_;    ///< ranks of other groups
  bool carries_own_;  ///< sending also places own rows
  i32* send_chunks_;
  i32* receive_units_;
  i32 own_slots_ = 0;

  bool is_first_ = true;
  bool failed_ = false;
  i64 next_send_;
  i64 num_send_ = 0;
  i32 own_unit_slots_ = 1;
  i32 own_units_ = 0;
  i64 num_near_units_ = 0;  ///< own ones, and those of peers
  i64 num_units_ = 0;
  // What is left of the unit that was drawn last.
  i32 source_ = 0;
  i32 first_ = 0;
  i32 end_ = 0;
};

}  // namespace moelink

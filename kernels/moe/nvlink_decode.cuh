// Dispatch of few tokens over ranks in one launch, without a barrier between blocks (docs/nvlink.md). A launch sends,
// receives, or does both. A block has parts of its source's rows, one after the other if the grid is small. Every block
//  1. begins to load its part of its first row; nothing is waited for,
//  2. reads all ids of its source, counts them per expert in its scratch, and which ranks each token goes to; the last
//     block then stores the header lines of all ranks, before any row,
//  3. finds, for its token, the slot at each rank and each entry's rank within the source; stores its part of the row
//     into those slots, part 0 with record and scales; passes a block barrier and releases the flags,
//  4. waits for the headers of all ranks, and works out where the rows of all (expert, source) start,
//  5. stores its parts of its own source's rows, which did not travel, to their places here,
//  6. waits for parts of other sources' rows, its share of them, as their flags come, and stores them to their places.
//     Blocks that have nothing in 3 and 5 are the first to have something here.
// A launch that sends and receives may have late flags (has_late_flags()): blocks release those of step 3 after step 5,
// and every second block takes all of step 3 between 5 and 6.
// The last block also publishes offsets, counts, tables and data errors. A grid with a block to spare has it do little
// else.
//
// A receive on its own routes again, from the same ids: inputs are valid until then. A call that reuses the last
// routing takes slots and rows from the tables and sends no records.
//
// Ordering: every block derives the same places from the same ids and headers, so that none waits for another of its
// launch. Stores of a block come before its flag (block barrier, release); a reader acquires the flag. Headers carry
// their tags. Progress: steps 1 and 2 wait for nobody, 3 neither, or if flags are late for step 2 of other ranks; 4 and
// 5 wait for step 2, and 6 for 2 and 3, of other ranks.
// Memory owned: block scratch (NvlinkDecodeScratch).
#pragma once

#include "moelink/device/moe/nvlink_few_tokens.cuh"
#include "moelink/device/moe/nvlink_part.cuh"
#include "moelink/device/moe/nvlink_received_rows.cuh"
#include "moelink/device/moe/relay.cuh"

namespace moelink {

struct NvlinkDecode {
  using Spec = NvlinkDispatchSpec;
  using Args = NvlinkDispatchArgs;
  static constexpr const char* kName = "NvlinkDecode";
  static constexpr const char* kHeader = "moelink/device/moe/nvlink_decode.cuh";

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    if (is_relay(ex, spec, args.remote)) return relay_dispatch(ex, spec, args);
    launch(beside_relay(ex, spec, args.remote), spec, args);
  }

 private:
  template <class Exec, class S>
  MOELINK_DEVICE static void launch(const Exec& ex, S spec, const Args& args) {
    Launch<Exec, S>(ex, spec, args).run();
  }

  template <class Exec, class S>
  class Launch {
   public:
    MOELINK_DEVICE Launch(const Exec& ex, S spec, const Args& args)
        : ex_(ex),
          spec_(spec),
          args_(args),
          at_(spec(), args.format.reuse_routing != 0 ? 0 : args.local.num_tokens),
          slots_(spec, args),
          parts_(spec, args),
          epoch_(args.tables, args.sends != 0 ? NvlinkPhase::dispatch_send : NvlinkPhase::dispatch_receive,
                 args.receives != 0 ? NvlinkPhase::dispatch_receive : NvlinkPhase::dispatch_send, is_last()),
          tokens_(ex, spec, args, at_),
          part_(spec),
          rows_(scratch<i32>(at_.rows)),
          weights_(scratch<float>(at_.weights)) {}

    MOELINK_DEVICE void run() {
      typename FewTokens<Exec, S>::Ids ids;  // the first that this thread counts
      if (!reuses()) {
        ids.load(args_.local.expert_ids, args_.local.id_bytes, ex_.thread(), ex_.num_threads(),
                 args_.local.num_tokens * spec_().top_k);
      }
      const i32 num_items = args_.local.num_tokens << parts_.log2_parts;
      if (ex_.block() < num_items) load_part(ex_.block());
      read_token_count();
      if (!reuses()) tokens_.count(ex_, ids, num_tokens_);
      epoch_.arrive();
      if (loaded_ >= 0) part_.quantize(ex_, spec_);
      if (epoch_.is_broken()) return leave();
      if (is_last() && ex_.thread() == 0) epoch_.check_order(args_.local.fault);
      if (args_.sends != 0 && !slots_.remotes().wait_until_free(ex_, args_.local.fault, kDispatchPuts, epoch_.value()))
        return leave();
      if (args_.sends != 0) {
        if (is_last()) send_header();
        MOELINK_NO_UNROLL
        for (i32 index = ex_.block(); index < num_items && !sends_second(); index += ex_.num_blocks()) {
          send_part(index);
        }
        if (is_last()) publish_sent();
      }
      const bool failed = args_.receives != 0 && !receive(num_items);
      if (ex_.thread() != 0) return;
      if (failed) epoch_.break_off();
      if (is_last() && !failed) epoch_.complete();
    }

   private:
    template <class T>
    [[nodiscard]] MOELINK_DEVICE T* scratch(i32 offset_bytes) const {
      return reinterpret_cast<T*>(static_cast<u8*>(ex_.scratch()) + offset_bytes);
    }
    // Worked out where they are wanted: cheaper than a register each.
    [[nodiscard]] MOELINK_DEVICE bool reuses() const { return args_.format.reuse_routing != 0; }
    [[nodiscard]] MOELINK_DEVICE bool is_last() const { return ex_.block() == ex_.num_blocks() - 1; }
    /// A release waits until all that the SM has stored has reached its rank: with much on the link, flags come after
    /// own rows, which need no link.
    [[nodiscard]] MOELINK_DEVICE bool has_late_flags() const {
      return !spec_().has_remotes && args_.late_flags != 0 && args_.sends != 0 && args_.receives != 0;
    }
    /// Then half of the blocks place their own rows first and send after, so that what the other half has sent is
    /// placed while this half's rows travel.
    [[nodiscard]] MOELINK_DEVICE bool sends_second() const { return has_late_flags() && ex_.block() % 2 != 0; }
    [[nodiscard]] MOELINK_DEVICE i32 rank() const { return args_.window.rank; }
    [[nodiscard]] MOELINK_DEVICE i32 group() const { return rank() / spec_().tp_size; }
    /// A flag for each slot and part.
    [[nodiscard]] MOELINK_DEVICE WireFormat format() const {
      WireFormat format = args_.format;
      format.log2_slots_per_flag = 0;
      format.parts = static_cast<u8>(1 << parts_.log2_parts);
      return format;
    }

    MOELINK_DEVICE void read_token_count() {
      const i32 given = reuses() ? *args_.local.num_tokens_snapshot : load_token_count(args_.local);
      num_tokens_ = clamp_token_count(args_.local, given);
    }

    MOELINK_DEVICE void load_part(i32 index) {
      part_.load(ex_, spec_, args_.local, parts_, index, reuses() ? nullptr : args_.local.weights);
      loaded_ = index;
    }
    /// Has part `index` as it will be stored.
    MOELINK_DEVICE void hold_part(i32 index) {
      if (index == loaded_) return;
      load_part(index);
      part_.quantize(ex_, spec_);
    }

    /// By the block: this token's slots (and ranks of its entries) in scratch, unless they are there from before.
    MOELINK_DEVICE void find(i32 token) {
      if (token == found_) return;
      if (found_ >= 0) ex_.sync_block();  // the last token's are not read any more
      if (!reuses()) {
        tokens_.find(ex_, token);
      } else {
        MOELINK_NO_UNROLL
        for (i32 to = ex_.thread(); to < spec_().num_ranks; to += ex_.num_threads()) {
          tokens_.slots[to] = args_.tables.slot_of_token[to * args_.shape.max_tokens + token];
        }
      }
      ex_.sync_block();
      found_ = token;
    }

    // Sending.

    /// By the last block. A warp counts the tokens for a rank and says so; all threads have the counts of experts.
    MOELINK_DEVICE void send_header() {
      const u32 hash = sum_of_hashes();
      send_header_pairs(ex_, spec_, args_, epoch_.value(), kHeaderHeadPairs, header_pairs(spec_, rank()),
                        [&](i32 to, i32 word) { return entries_of_expert(to, word - DispatchHeader::kCounts); });
      const u32 tag = tag_of(epoch_.value());
      MOELINK_NO_UNROLL
      for (i32 to = ex_.warp(); to < spec_().num_ranks; to += ex_.num_warps()) {
        const u32 slots = reuses() ? args_.tables.num_sent[to] : tokens_.total_to(ex_, to, num_tokens_);
        if (ex_.lane() != 0) continue;
        if (!reuses()) args_.tables.num_sent[to] = static_cast<i32>(slots);
        WordPair* const lines = header_lines(spec_, args_, to, rank());
        static_assert(DispatchHeader::kNumSlots == 0 && DispatchHeader::kNumTokens == 1);
        st_line_sys_pair(lines, {tagged(slots, tag), tagged(static_cast<u32>(num_tokens_), tag)});
        static_assert(DispatchHeader::kFormat == 2 && DispatchHeader::kHash == 3);
        st_line_sys_pair(lines + 1, {tagged(slots_.format_to(to, format()).packed(), tag), tagged(hash, tag)});
      }
      if (spec_().has_remotes) put_for_remotes();
    }

    /// By the block: of all members of a group the same. A source of one rank has nobody to differ from.
    [[nodiscard]] MOELINK_DEVICE u32 sum_of_hashes() const {
      if (spec_().tp_size == 1 || reuses()) return 0;
      u32* const sum = scratch<u32>(at_.sum);
      if (ex_.thread() == 0) *sum = 0;
      ex_.sync_block();
      scratch_add(ex_, sum, tokens_.hash(ex_, num_tokens_));
      ex_.sync_block();
      return *sum;
    }

    /// By the last block, once it has packed the headers: hands them over, and says how many pieces chunks have.
    MOELINK_DEVICE void put_for_remotes() {
      ex_.sync_block();
      put_remote_headers(ex_, spec_, args_, epoch_.value());
      slots_.remotes().expect_pieces(ex_, args_.local.fault, slots_.remote_rows(epoch_.value()),
                                     1 << parts_.log2_parts);
    }

    /// Of this source's entries, those of a rank's expert number `i`; 0 behind its last.
    [[nodiscard]] MOELINK_DEVICE u32 entries_of_expert(i32 to, i32 i) const {
      const i32 expert = first_expert_of(to, spec_().num_experts, spec_().num_ranks) + i;
      const bool exists = !reuses() && expert < first_expert_of(to + 1, spec_().num_experts, spec_().num_ranks);
      return exists ? tokens_.counts[expert] : 0;
    }

    /// Whether this rank stores the found token's row at rank `to`.
    [[nodiscard]] MOELINK_DEVICE bool sends_to(i32 to) const {
      const i32 tp_size = spec_().tp_size;
      const i32 slot = tokens_.slots[to];
      return slot >= 0 && to / tp_size != group() &&
             format().member_of_slot(slot, tp_size) == rank() - group() * tp_size;
    }

    MOELINK_DEVICE void send_part(i32 index) {
      hold_part(index);
      const i32 token = part_.token();
      if (token >= num_tokens_) return;
      find(token);
      MOELINK_NO_UNROLL
      for (i32 step = 1; step < spec_().num_ranks; ++step) {
        const i32 to = (rank() + step) % spec_().num_ranks;
        if (!sends_to(to)) continue;
        part_.send(ex_, spec_, args_.local, slots_.row(to, group(), tokens_.slots[to]));
        if (part_.is_first() && !reuses()) send_record(slots_.record(to, group(), tokens_.slots[to]), to);
      }
      if (part_.is_first() && !reuses()) publish_slots(token);
      if (has_late_flags()) return;
      ex_.sync_block();
      release_part(index);
    }

    /// By the block, a block barrier after the part was sent.
    MOELINK_DEVICE void release_part(i32 index) {
      const i32 token = index >> parts_.log2_parts;
      if (token >= num_tokens_) return;
      find(token);
      const i32 part = index & ((1 << parts_.log2_parts) - 1);
      MOELINK_NO_UNROLL
      for (i32 to = ex_.thread(); to < spec_().num_ranks; to += ex_.num_threads()) {
        if (!sends_to(to)) continue;
        if (slots_.remotes().has(to)) {
          slots_.remotes().add_piece(args_.local.fault, slots_.remote_rows(epoch_.value()), to, tokens_.slots[to]);
        } else {
          st_release_sys(slots_.flag(to, group(), tokens_.slots[to], part, format()), epoch_.value());
        }
      }
    }

    MOELINK_DEVICE void send_record(u8* record, i32 to) const {
      for (i32 k = ex_.thread(); k < spec_().top_k; k += ex_.num_threads()) {
        SlotEntry entry = tokens_.entry(part_.token(), k, to);
        entry.weight = part_.weight(k);
        SlotRecord::store_entry(record, k, entry);
      }
      if (ex_.thread() == 0) SlotRecord::store_token(record, part_.token());
    }

    MOELINK_DEVICE void publish_slots(i32 token) const {
      MOELINK_NO_UNROLL
      for (i32 to = ex_.thread(); to < spec_().num_ranks; to += ex_.num_threads()) {
        const i32 slot = tokens_.slots[to];
        args_.tables.slot_of_token[to * args_.shape.max_tokens + token] = slot;
        if (slot >= 0) args_.tables.token_of_slot[to * args_.shape.max_tokens + slot] = token;
      }
    }

    /// By the last block: what is known once tokens are routed.
    MOELINK_DEVICE void publish_sent() {
      if (reuses()) return;
      const u32 out_of_range = tokens_.out_of_range(ex_);
      if (ex_.sync_block_or(out_of_range != 0)) {
        report_block_sum(ex_, &args_.local.status->ids_out_of_range, out_of_range, scratch<u32>(at_.sum));
      }
      if (ex_.thread() == 0) publish_token_count(args_.local, load_token_count(args_.local), num_tokens_);
    }

    /// After a fault before anything was sent.
    MOELINK_DEVICE void leave() const {
      if (ex_.thread() == 0) epoch_.break_off();
      if (args_.receives != 0 && is_last())
        publish_nothing(ex_, args_, Places<S>(spec_, args_, ex_.scratch(), at_.sources));
    }

    // Receiving.

    /// False, for all threads, after a fault.
    [[nodiscard]] MOELINK_DEVICE bool receive(i32 num_items) {
      SourceHeaders<S> headers(spec_, ex_.scratch(), at_.sources);
      const Places<S> places(spec_, args_, ex_.scratch(), at_.sources);
      const ReceivedRows<Exec, S> received(spec_, args_, headers, places, epoch_.value(), scratch<u32>(at_.items),
                                           rows_, weights_);
      u32 clamped = 0;
      if (is_last() && !slots_.remotes().has_relay()) relay_remote_headers(ex_, spec_, args_, epoch_.value());
      if (!headers.wait(ex_, args_, epoch_.value(), clamped)) {
        if (is_last()) publish_nothing(ex_, args_, places);
        return false;
      }
      if (ex_.warp() == ex_.num_warps() - 1) received.count(ex_);
      if (ex_.warp() == 0 && !reuses()) places.make(ex_);
      ex_.sync_block();
      if (is_last() && !reuses()) publish_received(headers, places);
      if (is_last() && ex_.sync_block_or(clamped != 0)) {
        report_block_sum(ex_, &args_.local.status->peer_counts_clamped, clamped, scratch<u32>(at_.sum));
      }
      // The last one first: it is still held.
      MOELINK_NO_UNROLL
      for (i32 index = last_item(num_items); index >= 0; index -= ex_.num_blocks()) place_part(places, index);
      if (has_late_flags()) {
        MOELINK_NO_UNROLL
        for (i32 index = ex_.block(); index < num_items && sends_second(); index += ex_.num_blocks()) send_part(index);
        ex_.sync_block();
        MOELINK_NO_UNROLL
        for (i32 index = ex_.block(); index < num_items; index += ex_.num_blocks()) release_part(index);
      }
      if (!reuses()) {
        fill_pads_of_places(ex_, spec_, args_, places);
      } else {
        clear_pads_again(ex_, spec_, args_, places);
      }
      const i32 first = num_items < ex_.num_blocks() ? num_items : num_items % ex_.num_blocks();
      const bool placed = received.place_all(ex_, first);
      if (!placed && is_last()) publish_nothing(ex_, args_, places);
      return placed;
    }

    /// The last of this block's items; negative if it has none.
    [[nodiscard]] MOELINK_DEVICE i32 last_item(i32 num_items) const {
      if (loaded_ >= 0 && loaded_ + ex_.num_blocks() >= num_items) return loaded_;
      const i32 rest = num_items - 1 - ex_.block();
      return rest < 0 ? -1 : ex_.block() + rest / ex_.num_blocks() * ex_.num_blocks();
    }

    /// A part of an own token to its rows here.
    MOELINK_DEVICE void place_part(const Places<S>& places, i32 index) {
      hold_part(index);
      const i32 token = part_.token();
      if (token >= num_tokens_) return;
      find(token);
      const i32 slot = tokens_.slots[rank()];
      if (slot < 0) return;
      ex_.sync_block();  // the rows of the last part are not read any more
      if (!reuses()) part_.store_weights(ex_, spec_, weights_);
      for (i32 k = ex_.thread(); k < spec_().top_k; k += ex_.num_threads()) {
        if (reuses()) {
          place_again(places, slot, k);
          continue;
        }
        SlotEntry entry = tokens_.entry(token, k, rank());
        entry.weight = part_.weight(k);
        rows_[k] = places.row_of(group(), entry);
        if (part_.is_first()) publish_slot_entry(args_, spec_().top_k, group(), slot, token, k, rows_[k], entry);
      }
      if (part_.is_first() && ex_.thread() == 0 && !reuses()) {
        args_.tables.received_token[group() * args_.shape.max_tokens + slot] = token;
      }
      ex_.sync_block();
      part_.store(ex_, spec_, args_.local, rows_, weights_);
    }

    MOELINK_DEVICE void place_again(const Places<S>& places, i32 slot, i32 k) const {
      const i64 entry = (group() * args_.shape.max_tokens + slot) * spec_().top_k + k;
      const i32 row = args_.tables.row_of_entry[entry];
      rows_[k] = row < static_cast<i32>(places.total_rows()) ? row : -1;
      weights_[k] = args_.tables.weight_of_entry[entry];
    }

    /// By the last block: what is known once the headers are there.
    MOELINK_DEVICE void publish_received(const SourceHeaders<S>& headers, const Places<S>& places) const {
      const u32 dropped = publish_places(ex_, args_, places);
      MOELINK_NO_UNROLL
      for (i32 source = ex_.thread(); source < places.num_groups; source += ex_.num_threads()) {
        args_.tables.num_received[source] = headers.num_slots(source);
        args_.tables.source_tokens[source] = headers.num_tokens(source);
      }
      if (ex_.sync_block_or(dropped != 0)) {
        report_block_sum(ex_, &args_.local.status->rows_over_capacity, dropped, scratch<u32>(at_.sum));
      }
    }

    const Exec& ex_;
    S spec_;
    const Args& args_;
    NvlinkDecodeScratch at_;
    Slots<S> slots_;
    WireParts<Exec, S> parts_;
    NvlinkEpoch epoch_;
    FewTokens<Exec, S> tokens_;
    WirePart<Exec, S> part_;
    i32* rows_;
    float* weights_;
    i32 num_tokens_ = 0;
    i32 loaded_ = -1;  ///< item that part_ holds
    i32 found_ = -1;   ///< token whose slots and ranks are in scratch
  };
};

}  // namespace moelink

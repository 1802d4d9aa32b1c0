// Routing of many tokens by all blocks: which slot each token has at each destination, and how many earlier entries of
// this source chose the expert of each entry. A block has a contiguous range of tokens and
//  1. counts its entries of each physical expert and its tokens for each destination, into its row of a matrix;
//     barrier;
//  2. sums some columns: what the blocks before have (in place), and totals; barrier. Between its halves, whoever has a
//     total tells the rank that it concerns, in a header: the barrier's release need not wait until headers have crossed.
//     (With remotes before the first half: one block puts what all have packed);
//  3. walks its tokens in order. One warp gives ranks to entries, another slots to tokens; then all warps write tables,
//     and the records of the slots that this member sends; barrier.
//
// Ordering: the matrix, tables and records are written before a grid barrier and read behind it. Records at other ranks
// are behind that barrier, too, when the slots' flag is released (docs/nvlink.md, "Payload before flag").
//
// Memory: RouteScratch in block scratch; LocalDispatchArgs::block_counts; NvlinkTables, the part about sending.
#pragma once

#include "moelink/device/moe/nvlink_header.cuh"
#include "moelink/device/moe/nvlink_route.cuh"
#include "moelink/device/moe/nvlink_slots.cuh"
#include "moelink/device/moe/routing.cuh"
#include "moelink/device/moe/token_rows.cuh"
#include "moelink/device/primitives/convert.cuh"
#include "moelink/device/primitives/stable_rank.cuh"
#include "moelink/device/sync/grid_barrier.cuh"
#include "moelink/protocol/nvlink_prefill_scratch.hpp"

namespace moelink {

template <class Exec, class S>
class PrefillRoute {
 public:
  MOELINK_DEVICE PrefillRoute(S spec, const NvlinkDispatchArgs& args, u64 epoch, i32 num_tokens, u8* scratch,
                              const RouteScratch& at)
      : spec_(spec),
        args_(args),
        epoch_(epoch),
        num_tokens_(num_tokens),
        columns_(spec()),
        slots_(spec, args),
        group_(args.window.rank / spec().tp_size),
        member_(args.window.rank % spec().tp_size),
        next_(reinterpret_cast<u32*>(scratch + at.next)),
        codes_(reinterpret_cast<u16*>(scratch + at.codes)),
        destinations_(reinterpret_cast<u16*>(scratch + at.destinations)),
        ranks_(reinterpret_cast<u32*>(scratch + at.ranks)),
        slots_of_entries_(reinterpret_cast<u32*>(scratch + at.slots)),
        weights_(reinterpret_cast<float*>(scratch + at.weights)) {}

  /// By all threads of all blocks. False, everywhere, after a fault. Tables and records are there for all only when
  /// finish() says so; in between a block may do what needs none.
  MOELINK_DEVICE bool begin(const Exec& ex, u64& last_barrier) const {
    const TokenRange range(ex, num_tokens_);
    count(ex, range);
    if (!wait(ex, arrive(ex))) return false;
    sum_columns(ex);
    if (spec_().has_remotes) tell(ex);  // what one block puts, all have packed before this barrier
    const u64 summed = arrive(ex);
    if (!spec_().has_remotes) tell(ex);
    if (!wait(ex, summed)) return false;
    if (ex.block() == 0) put_remote_headers(ex, spec_, args_, epoch_);
    if (ex.block() == 0 && ex.thread() == 0) {
      report(&args_.local.status->ids_out_of_range, matrix_row(ex.num_blocks())[columns_.out_of_range]);
    }
    walk(ex, range);
    last_barrier = arrive(ex);
    return true;
  }
  MOELINK_DEVICE bool finish(const Exec& ex, u64 last_barrier) const { return wait(ex, last_barrier); }

 private:
  static constexpr i32 kBatch = RouteScratch::kBatch;
  static constexpr int kLanes = Exec::kWarpSize;

  MOELINK_DEVICE u64 arrive(const Exec& ex) const { return arrive_at_grid_barrier(ex, args_.local.grid_barrier); }
  MOELINK_DEVICE bool wait(const Exec& ex, u64 barrier) const {
    return wait_at_grid_barrier(ex, args_.local.grid_barrier, args_.local.fault, barrier);
  }
  /// The row behind the last block's holds the totals.
  MOELINK_DEVICE u32* matrix_row(i32 block) const {
    return args_.local.block_counts + static_cast<i64>(block) * columns_.pitch();
  }
  MOELINK_DEVICE i32 batch_tokens() const { return kBatch / spec_().top_k; }
  MOELINK_DEVICE bool is_elsewhere(i32 rank) const { return rank / spec_().tp_size != group_; }
  MOELINK_DEVICE i32 owner(i32 expert) const { return owner_of_expert(expert, spec_().num_experts, spec_().num_ranks); }

  /// By the block: codes and weights of the entries of tokens [first, end) into scratch; and the destination of each
  /// entry that is its token's first there, kSkippedCode at the others. Block barriers on both sides.
  MOELINK_DEVICE void stage(const Exec& ex, i32 first, i32 end) const {
    const PhysicalExperts experts(spec_, args_);
    const i32 num_entries = (end - first) * spec_().top_k;
    const i64 first_entry = static_cast<i64>(first) * spec_().top_k;
    for (i32 i = ex.thread(); i < num_entries; i += ex.num_threads()) {
      codes_[i] = experts.code(load_id(args_.local, first_entry + i), first + i / spec_().top_k);
      weights_[i] = load_weight(args_.local, first_entry + i);
    }
    ex.sync_block();
    for (i32 i = ex.thread(); i < num_entries; i += ex.num_threads()) {
      u16 destination = kSkippedCode;
      if (codes_[i] < spec_().num_experts) {
        destination = static_cast<u16>(owner(codes_[i]));
        for (i32 before = i - i % spec_().top_k; before < i; ++before) {
          if (codes_[before] < spec_().num_experts && owner(codes_[before]) == destination) {
            destination = kSkippedCode;
            break;
          }
        }
      }
      destinations_[i] = destination;
    }
    ex.sync_block();
  }

  /// By the block: this block's row of the matrix.
  MOELINK_DEVICE void count(const Exec& ex, TokenRange range) const {
    clear_words(ex, next_, columns_.count);
    for (i32 first = range.first; first < range.end; first += batch_tokens()) {
      if (first != range.first) ex.sync_block();
      const i32 end = min_of(first + batch_tokens(), range.end);
      stage(ex, first, end);
      for (i32 i = ex.thread(); i < (end - first) * spec_().top_k; i += ex.num_threads()) {
        const u16 code = codes_[i];
        if (code != kSkippedCode) {
          scratch_add(ex, next_ + (code < spec_().num_experts ? static_cast<i32>(code) : columns_.out_of_range), 1);
        }
        if (destinations_[i] != kSkippedCode) scratch_add(ex, next_ + columns_.destinations + destinations_[i], 1);
        if (spec_().tp_size > 1) {
          const u32 entry = static_cast<u32>(first) * spec_().top_k + i;
          scratch_add(ex, next_ + columns_.hash, entry_hash(entry, code, float_bits(weights_[i])));
        }
      }
    }
    ex.sync_block();
    u32* row = matrix_row(ex.block());
    for (i32 i = ex.thread(); i < columns_.count; i += ex.num_threads()) row[i] = next_[i];
  }

  /// Columns are dealt out to all warps of the launch.
  MOELINK_DEVICE i32 first_column(const Exec& ex) const { return ex.warp() * ex.num_blocks() + ex.block(); }

  /// Columns of the matrix become exclusive sums over the blocks, totals behind them. One warp a column.
  MOELINK_DEVICE void sum_columns(const Exec& ex) const {
    constexpr int kAtOnce = 5;  // 132 or 148 blocks by 32 lanes
    const i32 num_blocks = ex.num_blocks();
    for (i32 column = first_column(ex); column < columns_.count; column += ex.num_warps() * num_blocks) {
      u32 below = 0;
      for (i32 first = 0; first < num_blocks; first += kAtOnce * kLanes) {
        u32 counts[kAtOnce];
        MOELINK_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const i32 block = first + i * kLanes + ex.lane();
          counts[i] = block < num_blocks ? matrix_row(block)[column] : 0;
        }
        MOELINK_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const i32 block = first + i * kLanes + ex.lane();
          const u32 below_block = below + warp_exclusive_sum(ex, counts[i]);
          if (block < num_blocks) matrix_row(block)[column] = below_block;
          below = warp_broadcast(ex, below_block + counts[i], kLanes - 1);
        }
      }
      if (ex.lane() == 0) matrix_row(num_blocks)[column] = below;
    }
  }

  /// What follows from the totals of this warp's columns.
  MOELINK_DEVICE void tell(const Exec& ex) const {
    const u32* totals = matrix_row(ex.num_blocks());
    ex.sync_warp();  // a lane has stored them, all read them
    for (i32 column = first_column(ex); column < columns_.count; column += ex.num_warps() * ex.num_blocks()) {
      tell(ex, column, totals[column]);
    }
  }

  /// By one warp: the words of headers that follow from one total.
  MOELINK_DEVICE void tell(const Exec& ex, i32 column, u32 total) const {
    if (column < spec_().num_experts) {
      if (ex.lane() != 0 || member_ != 0) return;
      const i32 rank = owner(column);
      const i32 first = first_expert_of(rank, spec_().num_experts, spec_().num_ranks);
      send_header_word(spec_, args_, rank, DispatchHeader::kCounts + column - first, total, epoch_);
    } else if (column == columns_.hash) {
      for (i32 rank = ex.lane(); rank < spec_().num_ranks; rank += kLanes) {
        send_header_word(spec_, args_, rank, DispatchHeader::kHash, total, epoch_);
      }
    } else if (column != columns_.out_of_range) {
      const i32 rank = column - columns_.destinations;
      if (ex.lane() == 0) {
        args_.tables.num_sent[rank] = static_cast<i32>(total);
        send_header_word(spec_, args_, rank, DispatchHeader::kNumSlots, total, epoch_);
        send_header_word(spec_, args_, rank, DispatchHeader::kNumTokens, static_cast<u32>(num_tokens_), epoch_);
        send_header_word(spec_, args_, rank, DispatchHeader::kFormat, slots_.format_to(rank, args_.format).packed(),
                         epoch_);
      }
      if (member_ != 0) return;
      const i32 experts = first_expert_of(rank + 1, spec_().num_experts, spec_().num_ranks) -
                          first_expert_of(rank, spec_().num_experts, spec_().num_ranks);
      for (i32 i = experts + ex.lane(); i < SourceScratch::row_stride(spec_()); i += kLanes) {
        send_header_word(spec_, args_, rank, DispatchHeader::kCounts + i, 0, epoch_);
      }
    }
  }

  /// By the block: ranks and slots of its tokens, and what is written of them.
  MOELINK_DEVICE void walk(const Exec& ex, TokenRange range) const {
    const u32* row = matrix_row(ex.block());
    for (i32 i = ex.thread(); i < columns_.count; i += ex.num_threads()) next_[i] = row[i];
    const bool staged = range.end - range.first <= batch_tokens();  // count() left it all in scratch
    for (i32 first = range.first; first < range.end; first += batch_tokens()) {
      const i32 end = min_of(first + batch_tokens(), range.end);
      ex.sync_block();
      if (!staged) stage(ex, first, end);
      const i32 num_entries = (end - first) * spec_().top_k;
      if (ex.warp() == 0) take(ex, next_, codes_, spec_().num_experts, num_entries, ranks_);
      if (ex.warp() == ex.num_warps() - 1) {
        take(ex, next_ + columns_.destinations, destinations_, spec_().num_ranks, num_entries, slots_of_entries_);
      }
      ex.sync_block();
      write_slots_of_tokens(ex, first, end);
      for (i32 i = ex.warp(); i < num_entries; i += ex.num_warps()) {
        if (destinations_[i] != kSkippedCode) write_slot(ex, first, i);
      }
    }
  }

  /// By one warp: the next of each entry's counter.
  MOELINK_DEVICE static void take(const Exec& ex, u32* next, const u16* codes, i32 num_codes, i32 num_entries,
                                  u32* taken) {
    for (i32 from = 0; from < num_entries; from += kLanes) {
      const i32 i = from + ex.lane();
      const u32 mine = take_next(ex, next, i < num_entries ? codes[i] : kSkippedCode, num_codes);
      if (i < num_entries) taken[i] = mine;
    }
  }

  /// By the block: the slot of each token at each destination, or -1.
  MOELINK_DEVICE void write_slots_of_tokens(const Exec& ex, i32 first, i32 end) const {
    const i32 num_tokens = end - first;
    for (i32 i = ex.thread(); i < num_tokens * spec_().num_ranks; i += ex.num_threads()) {
      const i32 rank = i / num_tokens;
      const i32 token = i - rank * num_tokens;
      i32 slot = -1;
      for (i32 k = 0; k < spec_().top_k; ++k) {
        const i32 entry = token * spec_().top_k + k;
        if (destinations_[entry] == rank) slot = static_cast<i32>(slots_of_entries_[entry]);
      }
      args_.tables.slot_of_token[rank * args_.shape.max_tokens + first + token] = slot;
    }
  }

  /// By one warp: a slot's token, and its record if this rank is the one to write it. `entry` is the token's first
  /// there.
  MOELINK_DEVICE void write_slot(const Exec& ex, i32 first_token, i32 entry) const {
    const i32 rank = destinations_[entry];
    const i32 slot = static_cast<i32>(slots_of_entries_[entry]);
    const i32 token = first_token + entry / spec_().top_k;
    if (ex.lane() == 0) args_.tables.token_of_slot[rank * args_.shape.max_tokens + slot] = token;
    const bool sends = is_elsewhere(rank) && args_.format.member_of_slot(slot, spec_().tp_size) == member_;
    if (!sends && rank != args_.window.rank) return;
    u32* record = reinterpret_cast<u32*>(slots_.record(rank, group_, slot));
    const i32 first_entry = entry - entry % spec_().top_k;
    for (i32 word = ex.lane(); word < SlotRecord::num_words(spec_().top_k); word += kLanes) {
      record[word] = word < SlotRecord::kHeadWords ? (word == 0 ? static_cast<u32>(token) : 0)
                                                   : entry_word(rank, first_entry, word - SlotRecord::kHeadWords);
    }
  }

  /// Word `word` of a record's entries at `rank`, as SlotEntry lies in memory.
  MOELINK_DEVICE u32 entry_word(i32 rank, i32 first_entry, i32 word) const {
    const i32 entry = first_entry + word / SlotRecord::kEntryWords;
    const i32 field = word % SlotRecord::kEntryWords;
    if (field == 1) return ranks_[entry];
    if (field == 2) return float_bits(weights_[entry]);
    const i32 code = codes_[entry];
    const bool is_there = code < spec_().num_experts && owner(code) == rank;
    return static_cast<u32>(is_there ? code - first_expert_of(rank, spec_().num_experts, spec_().num_ranks) : -1);
  }

  S spec_;
  const NvlinkDispatchArgs& args_;
  u64 epoch_;
  i32 num_tokens_;
  RouteColumns columns_;
  Slots<S> slots_;
  i32 group_;
  i32 member_;
  u32* next_;
  u16* codes_;
  u16* destinations_;
  u32* ranks_;
  u32* slots_of_entries_;
  float* weights_;
};

}  // namespace moelink

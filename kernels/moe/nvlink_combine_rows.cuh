// Rows of the nvlink combine, or parts of rows, that a block sends or sums with all of its threads; what it waits for
// and what it tells others meanwhile. For NvlinkCombine (nvlink_combine.cuh), and on the host NvlinkCombineMany.
#pragma once

#include "moelink/device/moe/nvlink_combine_header.cuh"
#include "moelink/device/moe/nvlink_combine_regions.cuh"
#include "moelink/device/moe/partial_sum.cuh"
#include "moelink/device/sync/tagged_word.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/nvlink_combine_plan.hpp"

namespace moelink {

struct NvlinkCombineRows {
  /// By the block: one of its pieces, into the region of its home.
  template <class Exec, class S>
  MOELINK_DEVICE static void store_partial(const Exec& ex, S spec, const NvlinkCombineArgs& args,
                                           const CombineSend& send, u64 epoch) {
    const RowPiece& piece = send.piece;
    const i64 slot = static_cast<i64>(send.group) * args.shape.max_tokens + piece.index;
    RowSum sum = rows_of_entries(args, slot * spec().top_k);
    sum.output = partial_place(spec, args, send.home, piece.index);
    if (send.as_lines) {
      sum.output = line_partial_place(spec, args, send.home, piece.index);
    }
    sum.num_tokens = args.tables.num_received + send.group;
    sum.token = piece.index;
    store_own_partial(ex, spec, sum, first_element_of_part(spec, piece.first_part),
                      first_element_of_part(spec, piece.first_part + piece.num_parts),
                      send.as_lines ? tag_of(epoch) : 0);
  }

  /// By the block, behind a block barrier: the flags of what store_partial() stored.
  template <class Exec, class S>
  MOELINK_DEVICE static void release_partial(const Exec& ex, S spec, const NvlinkCombineArgs& args,
                                             const CombineSend& send, u64 epoch) {
    const RowPiece& piece = send.piece;
    if (const Remotes<S> remotes(spec, args.remote); remotes.has(send.home)) {
      if (ex.thread() == 0) {
        remotes.add_piece(args.fault, remote_partial_rows(spec, args, epoch), send.home, piece.index);
      }
      return;
    }
    u64* const flags = combine_flags_of(spec, args, send.home, piece.index) + piece.first_part;
    MOELINK_NO_UNROLL
    for (i32 part = ex.thread(); part < piece.num_parts; part += ex.num_threads()) st_release_sys(flags + part, epoch);
  }

  /// By the first warp: whether the partials of a piece of a token have come; the answer differs between its lanes.
  template <class Exec, class S>
  MOELINK_DEVICE static bool has_arrived(const Exec& ex, S spec, const NvlinkCombineArgs& args, const RowPiece& piece,
                                         u64 epoch) {
    return for_each_flag(ex, spec, args, piece, [&](i32, const u64* flag) { return ld_acquire_sys(flag) >= epoch; });
  }

  /// By the block; false: a fault. `gets_lines`: partials come as lines. `arrived`: they are known to be here.
  /// `before_wait()` is called once, when own rows are summed.
  template <class Exec, class S, class BeforeWait>
  MOELINK_DEVICE static bool sum_token(const Exec& ex, S spec, const NvlinkCombineArgs& args, const RowPiece& piece,
                                       u64 epoch, bool gets_lines, bool arrived, BeforeWait&& before_wait) {
    const i64 token = piece.index;
    const i64 slots = args.shape.max_tokens;
    const i32* const slot_of_rank = slots_of_token(ex, spec, args, piece.index);
    const i32 own_slot = slot_of_rank[args.window.rank];
    PartialSum sum{.own = rows_of_entries(args, 0),
                   .partials = partials_here(spec, args),
                   .pitch_bytes = args.shape.partial_pitch_bytes,
                   .remote = &args.remote,
                   .slot_of_rank = slot_of_rank,
                   .slots = slots,
                   .rank = args.window.rank,
                   .lines = gets_lines ? &args : nullptr,
                   .epoch = epoch};
    if (static_cast<u64>(own_slot) < static_cast<u64>(slots)) {
      sum.own = rows_of_entries(args, (args.window.rank / spec().tp_size * slots + own_slot) * spec().top_k);
    } else {
      sum.own.indices = nullptr;
    }
    sum.own.output = static_cast<u8*>(args.local.output) + token * args.local.output_stride_bytes;
    sum.own.accumulate = args.local.accumulate != 0;
    const ResultCopies copies{
        .window = &args.window,
        .offset_bytes = args.layout.result_rows.offset_bytes + token * args.shape.result_pitch_bytes,
        .first_rank = args.window.rank / spec().tp_size * spec().tp_size,
        .num_ranks = spec().tp_size};
    const auto wait = [&] {
      before_wait();
      if (arrived || gets_lines) return true;
      bool failed = false;
      if (ex.thread() < Exec::kWarpSize) {
        failed = !for_each_flag(ex, spec, args, piece, [&](i32 rank, const u64* flag) {
          const WaitFor what{.phase = FaultPhase::combine_receive, .peer = rank, .epoch = epoch, .expected = epoch};
          return Remotes<S>(spec, args.remote).wait_for_flag(args.fault, what, flag);
        });
      }
      return !ex.sync_block_or(failed);
    };
    const bool is_summed =
        sum_partials(ex, spec, sum, copies, first_element_of_part(spec, piece.first_part),
                     first_element_of_part(spec, piece.first_part + piece.num_parts), held_partial(ex, spec), wait);
    if (gets_lines ? ex.sync_block_or(!is_summed) : !is_summed) return false;
    if (spec().tp_size > 1) {
      ex.sync_block();
      for (i32 i = ex.thread(); i < copies.num_ranks * piece.num_parts; i += ex.num_threads()) {
        const i32 rank = copies.first_rank + i / piece.num_parts;
        if (rank == args.window.rank) continue;
        st_release_sys(result_flag(spec, args, rank, piece, i % piece.num_parts), epoch);
      }
    }
    return true;
  }

  /// Where `holder` is told that a part of a piece of a result has come (tp_size > 1).
  template <class S>
  MOELINK_DEVICE static u64* result_flag(S spec, const NvlinkCombineArgs& args, i32 holder, const RowPiece& piece,
                                         i32 part) {
    return args.window.template at<u64>(holder, args.layout.result_flags.offset_bytes, spec().num_ranks) +
           static_cast<i64>(piece.index) * kMaxWireParts + piece.first_part + part;
  }

 private:
  template <class Exec, class S>
  MOELINK_DEVICE static HeldPartial held_partial(const Exec& ex, S spec) {
    return {static_cast<u8*>(ex.scratch()) + CombineTeamScratch::kWordBytes, CombineTeamScratch(spec()).held_bytes};
  }

  /// By the first warp: poll(rank, flag) for every flag that a piece of a token waits for.
  template <class Exec, class S, class Poll>
  MOELINK_DEVICE static bool for_each_flag(const Exec& ex, S spec, const NvlinkCombineArgs& args, const RowPiece& piece,
                                           Poll&& poll) {
    const Remotes<S> remotes(spec, args.remote);
    const i32 log2_parts = floor_log2(static_cast<u32>(piece.num_parts));  // a power of two
    bool all = true;
    MOELINK_NO_UNROLL
    for (i32 i = ex.lane(); i < spec().num_ranks << log2_parts; i += Exec::kWarpSize) {
      const i32 rank = i >> log2_parts;
      const i64 slot = args.tables.slot_of_token[rank * args.shape.max_tokens + piece.index];
      if (rank == args.window.rank || static_cast<u64>(slot) >= static_cast<u64>(args.shape.max_tokens)) continue;
      const u64* flag = remotes.has(rank) ? remotes.row_flag(kCombinePuts, rank, static_cast<i32>(slot))
                                          : combine_flags(spec, args, args.window.rank, rank) + slot * kMaxWireParts +
                                                piece.first_part + (i & (piece.num_parts - 1));
      all = all && poll(rank, flag);
    }
    return all;
  }

  /// By a warp: the slot of a token at each rank, or what is none, in scratch that is the warp's own: all in one trip
  /// to memory.
  template <class Exec, class S>
  MOELINK_DEVICE static const i32* slots_of_token(const Exec& ex, S spec, const NvlinkCombineArgs& args, i32 token) {
    i32* const slots = reinterpret_cast<i32*>(static_cast<u8*>(ex.scratch()) + CombineTeamScratch(spec()).slots) +
                       ex.warp() * CombineTeamScratch::slots_stride(spec());
    ex.sync_warp();  // those of the last token are not read any more
    for (i32 rank = ex.lane(); rank < spec().num_ranks; rank += Exec::kWarpSize) {
      slots[rank] = args.tables.slot_of_token[rank * args.shape.max_tokens + token];
    }
    ex.sync_warp();
    return slots;
  }
};

}  // namespace moelink

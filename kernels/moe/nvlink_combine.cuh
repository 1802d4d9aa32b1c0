// Combine over ranks whose memory can be stored to: each rank sends home one partial sum per token, and each home adds
// the partials of its tokens in rank order. One launch for any number of tokens, or one per half. What is sent, when it
// may be overwritten and why nothing is read too early: docs/nvlink.md. The bits: the same page, "One call".
//
// Phases of a block (a team of a block's threads, exec/team_exec.cuh, which is a block to all of this); which items are
// its own: CombineSends, CombineSums.
//  1. Block 0 tells every rank how many of its entries were dropped here. Every rank signals every other, always.
//  2. Send: for each of its slots the weighted sum of the slot's rows, into the home's region for this rank; block
//     barrier; one release at system scope for each part of the row. If the source has few tokens, the sum goes as
//     lines (protocol/nvlink_lines.hpp), without barrier and release. The last row's release may come in phase 3,
//     before the wait, when the next token's own rows are summed (late_flags): it waits for nobody there either.
//  3. Sum: for each of its tokens, in rank order, the partials of the ranks that have one. Own rows are read before the
//     others are waited for.
//  4. With tp_size > 1 the home has stored the result to its group as well: each member copies the other members'
//     results.
//  5. Block 0 waits for the other ranks' headers, so that the kernel does not end before every rank has sent; then it
//     counts the phases as done. With few tokens it does so before its first sum.
// A block waits for no partial while it has something left to send: between two sends it sums a token whose partials
// have come.
//
// Ordering: rows and tables were written by earlier launches. A partial, or a result, is ordinary stores of one block,
// its barrier, a release per flag; a reader's first warp acquires the flags, and the block barrier behind it covers the
// other threads. Lines carry their tags.
// Progress: 1 and 2 wait for nobody, 3 for 1 and 2 of any rank, 4 for 3, 5 for 1; a block takes them in this order, and
// all blocks of the launch are resident.
// Memory owned: nothing. It writes the combine regions of its peers, result regions of its group, the words of
// combine_send and combine_receive.
#pragma once

#include "moelink/device/exec/team_exec.cuh"
#include "moelink/device/moe/nvlink_combine_header.cuh"
#include "moelink/device/moe/nvlink_combine_items.cuh"
#include "moelink/device/moe/nvlink_epoch.cuh"
#include "moelink/device/moe/partial_sum.cuh"
#include "moelink/device/moe/relay.cuh"
#include "moelink/device/moe/routing.cuh"
#include "moelink/device/ptx/line.cuh"
#include "moelink/device/sync/tagged_word.cuh"
#include "moelink/device/sync/wait_until.cuh"
#include "moelink/protocol/nvlink_combine_plan.hpp"

namespace moelink {

struct NvlinkCombine {
  using Spec = NvlinkCombineSpec;
  using Args = NvlinkCombineArgs;
  static constexpr const char* kName = "NvlinkCombine";
  static constexpr const char* kHeader = "moelink/device/moe/nvlink_combine.cuh";

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    if (is_relay(ex, spec, args.remote)) return relay_combine(ex, spec, args);
    const auto blocks = beside_relay(ex, spec, args.remote);
    run_block(as_team<kCombineTeamThreads>(blocks, spec().threads, CombineTeamScratch(spec()).total), spec, args);
  }

 private:
  template <class Exec, class S>
  MOELINK_DEVICE static void run_block(const Exec& ex, S spec, const Args& args) {
    NvlinkEpoch call(args.tables, args.sends != 0 ? NvlinkPhase::combine_send : NvlinkPhase::combine_receive,
                     args.receives != 0 ? NvlinkPhase::combine_receive : NvlinkPhase::combine_send, ex.block() == 0);
    const SourceCounts<Exec, S> counts(ex, spec, args);
    const i32 num_tokens =
        static_cast<i32>(ld_relaxed_gpu(reinterpret_cast<const u32*>(args.local.num_tokens_snapshot)));
    call.arrive();
    const u64 epoch = call.value();
    // After a dispatch that ended with a fault the epoch is that of the call before, whose flags have all come.
    const i32 own_group = args.window.rank / spec().tp_size;
    const bool has_dispatch = counts.received(own_group) != NvlinkTables::kNoDispatch;
    const bool has_few = counts.has_few_tokens(own_group);
    const bool gets_lines = spec().may_have_lines() && has_few && !clears_lines(epoch);
    if (call.is_broken() || !has_dispatch) return leave(ex, call);
    const bool is_keeper = ex.block() == 0;
    if (args.sends != 0 && !Remotes<S>(spec, args.remote).wait_until_free(ex, args.fault, kCombinePuts, epoch)) {
      return leave(ex, call);
    }
    if (is_keeper && args.sends != 0) send_combine_headers(ex, spec, args, epoch);
    CombineSends<Exec, S> sends(ex, spec, args, counts, epoch);
    CombineSums<Exec, S> sums(ex, spec, args, num_tokens, false);
    if (is_keeper && ex.thread() == 0) call.check_order(args.fault);
    bool is_whole = true;        // no fault so far
    bool knows_headers = false;  // keeper: has waited for the others'
    CombineSend next;
    bool sends_next = sends.next(spec, next);
    while (is_whole) {
      const bool may_sum = args.receives != 0 && sums.has();
      const CombineSend sent = next;
      bool arrived = false;
      bool is_late = false;  // its flags come when own rows are summed
      if (sends_next) {
        store_partial(ex, spec, args, sent, epoch);
        if (!sent.as_lines) {
          // The barrier before the release is also the one behind the look at what has come.
          bool waits = !may_sum || gets_lines;
          if (may_sum && !gets_lines && ex.thread() < Exec::kWarpSize) {
            waits = !has_arrived(ex, spec, args, sums.piece(spec), epoch);
          }
          arrived = !ex.sync_block_or(waits);
        }
        sends_next = sends.next(spec, next);
        // A release waits until all that the SM has stored has reached its rank: with much on the link, it comes after
        // what can be done meanwhile.
        is_late = !spec().has_remotes && args.late_flags != 0 && !sent.as_lines && !sends_next && may_sum && !arrived;
        if (!is_late && !sent.as_lines) release_partial(ex, spec, args, sent, epoch);
        if (sends_next && !arrived) continue;
      }
      if (!may_sum) break;
      // Partials of another type would be other lines, or none: the header comes before them and says so.
      if (is_keeper && !knows_headers && has_few) {
        knows_headers = true;
        is_whole = receive_combine_headers(ex, spec, args, epoch);
        if (!is_whole) break;
      }
      is_whole = sum_token(ex, spec, args, sums.piece(spec), epoch, gets_lines, arrived, [&] {
        if (is_late) release_partial(ex, spec, args, sent, epoch);
      });
      sums.advance();
    }
    if (args.receives != 0) {
      if (clears_lines(epoch)) clear_lines(ex, spec, args);
      if (spec().tp_size > 1) {
        CombineSums<Exec, S> copies(ex, spec, args, num_tokens, true);
        for (; is_whole && copies.has(); copies.advance()) {
          is_whole = copy_result(ex, spec, args, copies.piece(spec), epoch);
        }
      }
      if (is_keeper && !knows_headers) is_whole = receive_combine_headers(ex, spec, args, epoch) && is_whole;
    }
    if (!is_whole) return leave(ex, call);
    if (is_keeper && ex.thread() == 0) call.complete();
  }

  template <class Exec>
  MOELINK_DEVICE static void leave(const Exec& ex, const NvlinkEpoch& call) {
    if (ex.thread() == 0) call.break_off();
  }

  /// This rank's flags of partial rows at `home`.
  template <class S>
  MOELINK_DEVICE static u64* flags_of(S spec, const Args& args, i32 holder, i32 sender) {
    return args.window.template at<u64>(holder, args.layout.combine_flags.offset_bytes, spec().num_ranks) +
           Remotes<S>(spec, args.remote).peer(sender) * args.shape.max_tokens * kMaxWireParts;
  }

  /// By all blocks: NOTE [tags that come again] (protocol/nvlink_lines.hpp).
  template <class Exec, class S>
  MOELINK_DEVICE static void clear_lines(const Exec& ex, S spec, const Args& args) {
    u8* const lines = line_partials(spec, args, args.window.rank, 0);
    const i64 step = static_cast<i64>(ex.num_blocks()) * ex.num_threads() * 16;
    MOELINK_NO_UNROLL
    for (i64 at = (static_cast<i64>(ex.block()) * ex.num_threads() + ex.thread()) * 16;
         at < args.layout.line_partials.bytes(); at += step) {
      st_v4(lines + at, Vec16{0, 0, 0, 0});
    }
  }

  /// Where this rank stores, or packs, the partial row of one of its slots.
  template <class S>
  MOELINK_DEVICE static u8* partial_at(S spec, const Args& args, i32 home, i32 slot) {
    const Remotes<S> remotes(spec, args.remote);
    if (remotes.has(home)) {
      return remotes.packed(remotes.number(home)) + args.remote.send_layout.partials.offset_bytes +
             slot * remote_partial_bytes(spec);
    }
    const i64 region = static_cast<i64>(remotes.peer(args.window.rank)) * args.shape.max_tokens + slot;
    const i64 offset_bytes = args.layout.partial_rows.offset_bytes + region * args.shape.partial_pitch_bytes;
    return args.window.template at<u8>(home, offset_bytes, spec().num_ranks);
  }

  template <class Exec, class S>
  MOELINK_DEVICE static void store_partial(const Exec& ex, S spec, const Args& args, const CombineSend& send,
                                           u64 epoch) {
    const RowPiece& piece = send.piece;
    const i64 slot = static_cast<i64>(send.group) * args.shape.max_tokens + piece.index;
    RowSum sum = rows_of(args, slot * spec().top_k);
    sum.output = partial_at(spec, args, send.home, piece.index);
    if (send.as_lines) {
      sum.output = line_partials(spec, args, send.home, args.window.rank) +
                   i64{piece.index} * kLineExpansion * args.shape.partial_pitch_bytes;
    }
    sum.num_tokens = args.tables.num_received + send.group;
    sum.token = piece.index;
    store_own_partial(ex, spec, sum, first_element_of_part(spec, piece.first_part),
                      first_element_of_part(spec, piece.first_part + piece.num_parts),
                      send.as_lines ? tag_of(epoch) : 0);
  }

  template <class Exec, class S>
  MOELINK_DEVICE static void release_partial(const Exec& ex, S spec, const Args& args, const CombineSend& send,
                                             u64 epoch) {
    const RowPiece& piece = send.piece;
    if (const Remotes<S> remotes(spec, args.remote); remotes.has(send.home)) {
      if (ex.thread() == 0) {
        remotes.add_piece(args.fault, remote_partial_rows(spec, args, epoch), send.home, piece.index);
      }
      return;
    }
    u64* const flags = flags_of(spec, args, send.home, args.window.rank) +
                       static_cast<i64>(piece.index) * kMaxWireParts + piece.first_part;
    MOELINK_NO_UNROLL
    for (i32 part = ex.thread(); part < piece.num_parts; part += ex.num_threads()) st_release_sys(flags + part, epoch);
  }

  template <class Exec, class S>
  MOELINK_DEVICE static HeldPartial held_partial(const Exec& ex, S spec) {
    return {static_cast<u8*>(ex.scratch()) + CombineTeamScratch::kWordBytes, CombineTeamScratch(spec()).held_bytes};
  }

  /// The rows here of a slot's entries; `first_entry` counts slots of all sources.
  MOELINK_DEVICE static RowSum rows_of(const Args& args, i64 first_entry) {
    return {.rows = static_cast<const u8*>(args.local.expert_output),
            .row_stride_bytes = args.local.expert_output_stride_bytes,
            .num_rows = static_cast<u32>(min_of(args.local.expert_output_rows, static_cast<i64>(0x7fffffff))),
            .indices = args.tables.row_of_entry + first_entry,
            .weights = args.local.weighted != 0 ? args.tables.weight_of_entry + first_entry : nullptr,
            .shared = nullptr,
            .output = nullptr,
            .accumulate = false,
            .num_tokens = nullptr,
            .token = 0,
            .streaming = false};
  }

  /// By the first warp: poll(rank, flag) for every flag that a piece of a token waits for.
  template <class Exec, class S, class Poll>
  MOELINK_DEVICE static bool for_each_flag(const Exec& ex, S spec, const Args& args, const RowPiece& piece,
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
                                          : flags_of(spec, args, args.window.rank, rank) + slot * kMaxWireParts +
                                                piece.first_part + (i & (piece.num_parts - 1));
      all = all && poll(rank, flag);
    }
    return all;
  }

  /// By the first warp; the answer differs between its lanes.
  template <class Exec, class S>
  MOELINK_DEVICE static bool has_arrived(const Exec& ex, S spec, const Args& args, const RowPiece& piece, u64 epoch) {
    return for_each_flag(ex, spec, args, piece, [&](i32, const u64* flag) { return ld_acquire_sys(flag) >= epoch; });
  }

  /// By a warp: the slot of a token at each rank, or what is none, in scratch that is the warp's own: all in one trip
  /// to memory.
  template <class Exec, class S>
  MOELINK_DEVICE static const i32* slots_of_token(const Exec& ex, S spec, const Args& args, i32 token) {
    i32* const slots = reinterpret_cast<i32*>(static_cast<u8*>(ex.scratch()) + CombineTeamScratch(spec()).slots) +
                       ex.warp() * CombineTeamScratch::slots_stride(spec());
    ex.sync_warp();  // those of the last token are not read any more
    for (i32 rank = ex.lane(); rank < spec().num_ranks; rank += Exec::kWarpSize) {
      slots[rank] = args.tables.slot_of_token[rank * args.shape.max_tokens + token];
    }
    ex.sync_warp();
    return slots;
  }

  /// By the block; false: a fault. `gets_lines`: partials come as lines. `arrived`: they are known to be here.
  /// `before_wait()` is called once, when own rows are summed.
  template <class Exec, class S, class BeforeWait>
  MOELINK_DEVICE static bool sum_token(const Exec& ex, S spec, const Args& args, const RowPiece& piece, u64 epoch,
                                       bool gets_lines, bool arrived, BeforeWait&& before_wait) {
    const i64 token = piece.index;
    const i64 slots = args.shape.max_tokens;
    const i32* const slot_of_rank = slots_of_token(ex, spec, args, piece.index);
    const i32 own_slot = slot_of_rank[args.window.rank];
    PartialSum sum{.own = rows_of(args, 0),
                   .partials = args.window.template at<u8>(args.window.rank, args.layout.partial_rows.offset_bytes,
                                                           spec().num_ranks),
                   .pitch_bytes = args.shape.partial_pitch_bytes,
                   .remote = &args.remote,
                   .slot_of_rank = slot_of_rank,
                   .slots = slots,
                   .rank = args.window.rank,
                   .lines = gets_lines ? &args : nullptr,
                   .epoch = epoch};
    if (static_cast<u64>(own_slot) < static_cast<u64>(slots)) {
      sum.own = rows_of(args, (args.window.rank / spec().tp_size * slots + own_slot) * spec().top_k);
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

  template <class S>
  MOELINK_DEVICE static u64* result_flag(S spec, const Args& args, i32 holder, const RowPiece& piece, i32 part) {
    return args.window.template at<u64>(holder, args.layout.result_flags.offset_bytes, spec().num_ranks) +
           static_cast<i64>(piece.index) * kMaxWireParts + piece.first_part + part;
  }

  /// By the block: the result of a token that another member of the group sums.
  template <class Exec, class S>
  MOELINK_DEVICE static bool copy_result(const Exec& ex, S spec, const Args& args, const RowPiece& piece, u64 epoch) {
    const i32 home = args.window.rank / spec().tp_size * spec().tp_size + piece.index % spec().tp_size;
    bool failed = false;
    for (i32 part = ex.thread(); part < piece.num_parts; part += ex.num_threads()) {
      const WaitFor what{.phase = FaultPhase::combine_receive, .peer = home, .epoch = epoch, .expected = epoch};
      failed =
          failed || !wait_until_reached_sys(args.fault, what, result_flag(spec, args, args.window.rank, piece, part));
    }
    if (ex.sync_block_or(failed)) return false;
    const i64 element_bytes = bytes_of(spec().output);
    const i64 begin = first_element_of_part(spec, piece.first_part) * element_bytes / 16;
    const i64 end = first_element_of_part(spec, piece.first_part + piece.num_parts) * element_bytes / 16;
    const u8* from =
        args.window.template at<u8>(args.window.rank, args.layout.result_rows.offset_bytes, spec().num_ranks) +
        piece.index * args.shape.result_pitch_bytes;
    u8* to = static_cast<u8*>(args.local.output) + piece.index * args.local.output_stride_bytes;
    for (i64 unit = begin + ex.thread(); unit < end; unit += ex.num_threads()) {
      st_v4(to + unit * 16, ld_v4_once(from + unit * 16));
    }
    return true;
  }
};

}  // namespace moelink

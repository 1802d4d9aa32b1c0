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
#include "moelink/device/moe/nvlink_combine_rows.cuh"
#include "moelink/device/moe/nvlink_epoch.cuh"
#include "moelink/device/moe/relay.cuh"
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
  using Rows = NvlinkCombineRows;

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
    CombineSends<Exec, S> sends(CombineWorker::block(ex), spec, args, counts, epoch);
    if (is_keeper && args.sends != 0) {
      const Remotes<S> remotes(spec, args.remote);
      remotes.expect_pieces(ex, args.fault, remote_partial_rows(spec, args, epoch), sends.blocks_of_row());
    }
    CombineSums<S> sums(CombineWorker::block(ex), spec, args, num_tokens, false);
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
        Rows::store_partial(ex, spec, args, sent, epoch);
        if (!sent.as_lines) {
          // The barrier before the release is also the one behind the look at what has come.
          bool waits = !may_sum || gets_lines;
          if (may_sum && !gets_lines && ex.thread() < Exec::kWarpSize) {
            waits = !Rows::has_arrived(ex, spec, args, sums.piece(spec), epoch);
          }
          arrived = !ex.sync_block_or(waits);
        }
        sends_next = sends.next(spec, next);
        // A release waits until all that the SM has stored has reached its rank: with much on the link, it comes after
        // what can be done meanwhile.
        is_late = !spec().has_remotes && args.late_flags != 0 && !sent.as_lines && !sends_next && may_sum && !arrived;
        if (!is_late && !sent.as_lines) Rows::release_partial(ex, spec, args, sent, epoch);
        if (sends_next && !arrived) continue;
      }
      if (!may_sum) break;
      // Partials of another type would be other lines, or none: the header comes before them and says so.
      if (is_keeper && !knows_headers && has_few) {
        knows_headers = true;
        is_whole = receive_combine_headers(ex, spec, args, epoch);
        if (!is_whole) break;
      }
      is_whole = Rows::sum_token(ex, spec, args, sums.piece(spec), epoch, gets_lines, arrived, [&] {
        if (is_late) Rows::release_partial(ex, spec, args, sent, epoch);
      });
      sums.advance();
    }
    if (args.receives != 0) {
      if (clears_lines(epoch)) clear_lines(ex, spec, args);
      if (spec().tp_size > 1) {
        CombineSums<S> copies(CombineWorker::block(ex), spec, args, num_tokens, true);
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

  /// By the block: the result of a token that another member of the group sums.
  template <class Exec, class S>
  MOELINK_DEVICE static bool copy_result(const Exec& ex, S spec, const Args& args, const RowPiece& piece, u64 epoch) {
    const i32 home = args.window.rank / spec().tp_size * spec().tp_size + piece.index % spec().tp_size;
    bool failed = false;
    for (i32 part = ex.thread(); part < piece.num_parts; part += ex.num_threads()) {
      const WaitFor what{.phase = FaultPhase::combine_receive, .peer = home, .epoch = epoch, .expected = epoch};
      failed = failed ||
               !wait_until_reached_sys(args.fault, what, Rows::result_flag(spec, args, args.window.rank, piece, part));
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

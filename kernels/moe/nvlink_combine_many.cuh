// Combine of many tokens over ranks whose memory can be stored to: what NvlinkCombine does, by warps instead of teams,
// each with pieces of rows of its own (nvlink_combine_stream.cuh). What travels is the same: which of the two another
// rank runs makes no difference. What is sent, when it may be overwritten and why nothing is read too early, and the
// bits: docs/nvlink.md.
//
// Phases of a block:
//  1. Block 0 tells every rank how many of its entries were dropped here. Every rank signals every other, always.
//  2. Its warps send partials of slots, and sum tokens, in one order (NOTE [order of pieces],
//     nvlink_combine_items.cuh); the last one stores the flags of what the others have sent. A source, or this rank,
//     may have so few tokens that partials are lines.
//  3. Block 0 waits for the other ranks' headers, so that the kernel does not end before every rank has sent; then it
//     counts the phases as done. If partials come as lines it does so before 2.
//
// Ordering: nvlink_combine_stream.cuh.
// Progress: 1 waits for nobody, 2 for 1 and 2 of any rank in that order, 3 for 1; all blocks of the launch are
// resident.
// Memory owned: nothing. It writes the combine regions of its peers, the words of combine_send and combine_receive.
#pragma once

#include "moelink/device/moe/nvlink_combine_header.cuh"
#include "moelink/device/moe/nvlink_combine_stream.cuh"
#include "moelink/device/moe/nvlink_epoch.cuh"

namespace moelink {

struct NvlinkCombineMany {
  using Spec = NvlinkCombineSpec;
  using Args = NvlinkCombineArgs;
  static constexpr const char* kName = "NvlinkCombineMany";
  static constexpr const char* kHeader = "moelink/device/moe/nvlink_combine_many.cuh";

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    const bool is_keeper = ex.block() == 0;
    NvlinkEpoch call(args.tables, args.sends != 0 ? NvlinkPhase::combine_send : NvlinkPhase::combine_receive,
                     args.receives != 0 ? NvlinkPhase::combine_receive : NvlinkPhase::combine_send, is_keeper);
    const SourceCounts<Exec, S> counts(ex, spec, args);
    const i32 num_tokens =
        static_cast<i32>(ld_relaxed_gpu(reinterpret_cast<const u32*>(args.local.num_tokens_snapshot)));
    call.arrive();
    const u64 epoch = call.value();
    const bool has_dispatch = counts.received(args.window.rank) != NvlinkTables::kNoDispatch;
    bool is_whole = !call.is_broken() & has_dispatch;
    if (is_whole) {
      const bool gets_lines =
          spec().may_have_lines() && counts.has_few_tokens(args.window.rank) && !clears_lines(epoch);
      if (is_keeper && args.sends != 0) send_combine_headers(ex, spec, args, epoch);
      if (is_keeper && ex.thread() == 0) call.check_order(args.fault);
      const bool has_headers = is_keeper && args.receives != 0 && gets_lines;
      if (has_headers) is_whole = receive_combine_headers(ex, spec, args, epoch);
      CombineStream<Exec, S>::prepare(ex);
      ex.sync_block();
      if (is_whole) is_whole = !ex.sync_block_or(!stream(ex, spec, args, counts, num_tokens, epoch, gets_lines));
      if (args.receives != 0 && clears_lines(epoch)) clear_lines(ex, spec, args);
      if (is_keeper && args.receives != 0 && !has_headers) {
        is_whole = receive_combine_headers(ex, spec, args, epoch) && is_whole;
      }
    }
    if (ex.thread() != 0) return;
    if (!is_whole) {
      call.break_off();
    } else if (is_keeper) {
      call.complete();
    }
  }

 private:
  template <class Exec, class S>
  MOELINK_DEVICE static bool stream(const Exec& ex, S spec, const Args& args, const SourceCounts<Exec, S>& counts,
                                    i32 num_tokens, u64 epoch, bool gets_lines) {
    using Pieces = CombineStream<Exec, S>;
    if (Pieces::is_flag_warp(ex)) {
      if (args.sends != 0) Pieces::store_flags(ex, args, epoch);
      return true;
    }
    const CombineWorker worker = CombineWorker::warp(ex, CombineManyScratch(spec()).warps);
    CombineSends<Exec, S> sends(worker, spec, args, counts, epoch);
    CombineSums<S> sums(worker, spec, args, num_tokens, false);
    CombineOrder<Exec, S> order(spec, args, sends, sums);
    return Pieces(ex, spec, args, epoch, gets_lines).run(order);
  }
};

}  // namespace moelink

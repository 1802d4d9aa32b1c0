// Dispatch of many tokens in one launch. A block has a contiguous range of tokens and
//  1. learns how many entries of each expert the blocks before have, and all. Either every block reads all ids
//     (`every_block_counts`: as long as that takes no longer than barriers do), or, in a resident grid,
//      a. counts its own entries into its row of the matrix counts[block][expert]; grid barrier;
//      b. sums some columns of the matrix: what the blocks before have of an expert (in place), and the expert's total;
//         grid barrier,
//  2. sums the totals, aligned, over the experts, which gives the next row of each expert; publishes offsets and counts
//     of some of the experts,
//  3. walks its tokens in order: one warp takes the next row of each entry's expert, another copies rows through a ring
//     in scratch; the rest mark the pads of those experts.
//
// Ordering: the matrix is written before a grid barrier and read behind it. Within an expert, rows go by block, and by
// entry within a block: token order, since ranges ascend. Each row, entry and expert is written by one block.
//
// Rows are not loaded ahead of routing: it gained nothing, because ids and barriers then queue behind the rows
// (docs/decisions/0003-decode-routing.md).
//
// Memory owned: block scratch (PrefillScratch); block_counts and the grid barrier of the workspace. Nothing is kept
// between launches.
#pragma once

#include "moelink/device/moe/experts.cuh"
#include "moelink/device/moe/routing_digest.cuh"
#include "moelink/device/moe/token_rows.cuh"
#include "moelink/device/primitives/stable_rank.cuh"
#include "moelink/device/sync/grid_barrier.cuh"

namespace moelink {

struct LocalPrefill {
  using Spec = LocalDispatchSpec;
  using Args = LocalDispatchArgs;
  static constexpr const char* kName = "LocalPrefill";
  static constexpr const char* kHeader = "moelink/device/moe/local_prefill.cuh";

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    const PhaseWord phase(ex, ex.block() == 0, args.phase, PhaseWord::Call::dispatch);
    const i32 given_tokens = load_token_count(args);
    const i32 num_tokens = clamp_token_count(args, given_tokens);
    const TokenRange range(ex, num_tokens);
    const bool every_block_counts = args.every_block_counts != 0;
    const PrefillScratch at(spec().num_experts, every_block_counts, args.ring_bytes);
    u8* scratch = static_cast<u8*>(ex.scratch());
    u32* next = reinterpret_cast<u32*>(scratch + at.experts);
    u32* totals = reinterpret_cast<u32*>(scratch + at.totals);
    u32* warp_sums = reinterpret_cast<u32*>(scratch + at.warp_sums);

    if (every_block_counts) {
      count_all(ex, spec, args, range, num_tokens, next, totals);
      find_first_rows(ex, spec, args, next, totals, next, warp_sums);
    } else {
      count_own(ex, spec, args, range, next);
      bool all_came = grid_barrier(ex, args.grid_barrier, args.fault);
      if (all_came) {
        sum_columns(ex, spec, args);
        all_came = grid_barrier(ex, args.grid_barrier, args.fault);
      }
      if (!all_came) {
        clear_experts(ex, spec, args);
        return;
      }
      find_first_rows(ex, spec, args, args.block_counts + matrix_row(spec, ex.block()),
                      args.block_counts + matrix_row(spec, ex.num_blocks()), next, warp_sums);
    }
    ex.sync_block();
    TokenRows<Exec, S> token_rows(spec, args, at, scratch, range);
    EntryHash hash;
    token_rows.move(ex, Finder<S>{spec, args, RowLimits(args), next, &hash});
    if (spec().is_part) publish_digest_part(ex, args, num_tokens, hash, token_rows.finding_warp());
    if (has_pads(args)) mark_pads(ex, spec, args, token_rows.busy_warps(ex));
    if (ex.block() == 0 && ex.thread() == 0) publish_token_count(args, given_tokens, num_tokens);
    phase.advance(args.status);
  }

 private:
  /// Gives each entry the next row of its expert.
  template <class S>
  struct Finder {
    struct Loaded {
      IdWords id;
      float weight = 1.0F;
    };

    S spec;
    const Args& args;
    RowLimits limits;
    u32* next;
    EntryHash* hash;  // this thread's sum

    MOELINK_DEVICE Loaded load(i64 entry) const { return {load_id(args, entry), load_weight(args, entry)}; }

    template <class Exec>
    MOELINK_DEVICE Placement place(const Exec& ex, i64 entry, const Loaded& loaded) const {
      const u16 code = entry < 0 ? kSkippedCode : code_of(spec, args, loaded.id);
      const u32 taken = take_next(ex, next, code, spec().num_experts);
      if (entry < 0) return {};
      if (spec().is_part) hash->add(entry, loaded.id, loaded.weight);
      const bool kept = code < spec().num_experts && taken < limits.end(code);
      const i32 row = kept ? static_cast<i32>(taken) : -1;
      publish_entry(args, entry, row, code, loaded.weight);
      return {row, loaded.weight};
    }
  };

  /// Words from one row of the matrix to the next; the row behind the last block's holds the totals.
  template <class S>
  MOELINK_DEVICE static i64 matrix_row(S spec, i32 block) {
    return static_cast<i64>(block) * round_up(spec().num_experts + 1, 4);
  }

  /// Calls count(index, entry) for every entry of [first, end) with a row or an id out of range: index is the expert,
  /// or num_experts. By the block, several loads under way. `clear` is called once while the first are.
  template <class Exec, class S, class Clear, class Count>
  MOELINK_DEVICE static void for_each_entry(const Exec& ex, S spec, const Args& args, i64 first, i64 end,
                                            const Clear& clear, const Count& count) {
    constexpr int kAtOnce = 8;
    const i32 step = ex.num_threads();
    for (i64 round = first; round == first || round < end; round += kAtOnce * step) {
      const i64 from = round + ex.thread();
      IdBatch<kAtOnce> batch;
      batch.load(args.expert_ids, args.id_bytes, from, step, end);
      if (round == first) clear();
      MOELINK_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (from + i * step >= end) break;
        const u16 code = code_of(spec, args, batch.ids[i]);
        if (code != kSkippedCode) count(min_of<i32>(code, spec().num_experts), from + i * step);
      }
    }
  }

  /// All entries: those of blocks before this one, and all of them, per expert. In scratch.
  template <class Exec, class S>
  MOELINK_DEVICE static void count_all(const Exec& ex, S spec, const Args& args, TokenRange range, i32 num_tokens,
                                       u32* below_block, u32* totals) {
    const i64 first_own = static_cast<i64>(range.first) * spec().top_k;
    for_each_entry(
        ex, spec, args, 0, static_cast<i64>(num_tokens) * spec().top_k,
        [&] {
          clear_words(ex, below_block, spec().num_experts + 1);
          clear_words(ex, totals, spec().num_experts + 1);
          ex.sync_block();
        },
        // Each entry adds to one counter; totals lack those below until all are counted.
        [&](i32 index, i64 entry) { scratch_add(ex, &(entry < first_own ? below_block : totals)[index], 1); });
    ex.sync_block();
    for (i32 e = ex.thread(); e <= spec().num_experts; e += ex.num_threads()) totals[e] += below_block[e];
    ex.sync_block();
  }

  /// Entries of each expert in this block's range, into scratch and the matrix.
  template <class Exec, class S>
  MOELINK_DEVICE static void count_own(const Exec& ex, S spec, const Args& args, TokenRange range, u32* counts) {
    for_each_entry(
        ex, spec, args, static_cast<i64>(range.first) * spec().top_k, static_cast<i64>(range.end) * spec().top_k,
        [&] {
          clear_words(ex, counts, spec().num_experts + 1);
          ex.sync_block();
        },
        [&](i32 index, i64) { scratch_add(ex, &counts[index], 1); });
    ex.sync_block();
    u32* row = args.block_counts + matrix_row(spec, ex.block());
    for (i32 e = ex.thread(); e <= spec().num_experts; e += ex.num_threads()) row[e] = counts[e];
  }

  /// Columns of the matrix become exclusive sums over the blocks; totals behind them. One warp an expert.
  template <class Exec, class S>
  MOELINK_DEVICE static void sum_columns(const Exec& ex, S spec, const Args& args) {
    constexpr int kAtOnce = 5;  // 132 or 148 blocks by 32 lanes
    const i32 num_blocks = ex.num_blocks();
    for (i32 e = ex.warp() * num_blocks + ex.block(); e <= spec().num_experts; e += ex.num_warps() * num_blocks) {
      u32 below = 0;
      for (i32 first = 0; first < num_blocks; first += kAtOnce * Exec::kWarpSize) {
        u32 counts[kAtOnce];
        MOELINK_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const i32 block = first + i * Exec::kWarpSize + ex.lane();
          counts[i] = block < num_blocks ? args.block_counts[matrix_row(spec, block) + e] : 0;
        }
        MOELINK_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const i32 block = first + i * Exec::kWarpSize + ex.lane();
          const u32 below_block = below + warp_exclusive_sum(ex, counts[i]);
          if (block < num_blocks) args.block_counts[matrix_row(spec, block) + e] = below_block;
          below = warp_broadcast(ex, below_block + counts[i], Exec::kWarpSize - 1);
        }
      }
      if (ex.lane() == 0) args.block_counts[matrix_row(spec, num_blocks) + e] = below;
    }
  }

  /// After a fault: no rows for whatever runs next.
  template <class Exec, class S>
  MOELINK_DEVICE static void clear_experts(const Exec& ex, S spec, const Args& args) {
    const i32 step = ex.num_blocks() * ex.num_threads();
    for (i32 e = ex.block() * ex.num_threads() + ex.thread(); e <= spec().num_experts; e += step) {
      args.offsets[e] = 0;
      if (e < spec().num_experts) args.counts[e] = 0;
    }
    if (ex.block() == 0 && ex.thread() == 0) *args.num_tokens_snapshot = 0;
  }

  /// The first row of this block's entries of each expert, into scratch; `below_block` may be `next` itself. A thread
  /// has some neighbouring experts.
  template <class Exec, class S>
  MOELINK_DEVICE static void find_first_rows(const Exec& ex, S spec, const Args& args, const u32* below_block,
                                             const u32* totals, u32* next, u32* warp_sums) {
    const RowLimits limits(args);
    const i32 num_experts = spec().num_experts;
    const i32 per_thread = ceil_div(num_experts, ex.num_threads());
    const i32 begin = min_of(ex.thread() * per_thread, num_experts);
    const i32 end = min_of(begin + per_thread, num_experts);
    u32 rows = 0;
    for (i32 e = begin; e < end; ++e) rows += limits.aligned(totals[e]);
    u32 below = block_exclusive_sum(ex, rows, warp_sums);
    u32 dropped = 0;
    for (i32 e = begin; e < end; ++e) {
      const u32 first = limits.first(e, below);
      const u32 kept = min_of(totals[e], limits.end(e) - first);
      next[e] = first + below_block[e];
      dropped += totals[e] - kept;
      if (e % ex.num_blocks() == ex.block()) {
        args.offsets[e] = first;
        args.counts[e] = static_cast<i32>(kept);
        if (e + 1 == num_experts) args.offsets[num_experts] = limits.end_of_pads(first, kept);
      }
      below += limits.aligned(totals[e]);
    }
    if (ex.block() == 0) {
      if (ex.thread() == 0) report(&args.status->ids_out_of_range, totals[num_experts]);
      report_dropped(ex, spec, args, dropped, warp_sums);
    }
  }

  /// The pads of the experts whose offsets this block wrote, by the warps that do not move rows (by all, if all do).
  template <class Exec, class S>
  MOELINK_DEVICE static void mark_pads(const Exec& ex, S spec, const Args& args, int busy_warps) {
    const RowLimits limits(args);
    const int first_warp = busy_warps < ex.num_warps() ? busy_warps : 0;
    if (ex.warp() < first_warp) return;
    for (i32 e = ex.block(); e < spec().num_experts; e += ex.num_blocks()) {
      const u32 first = static_cast<u32>(args.offsets[e]);
      const u32 kept = static_cast<u32>(args.counts[e]);
      fill_pads(ex, spec, args, first + kept, limits.end_of_pads(first, kept), ex.warp() - first_warp,
                ex.num_warps() - first_warp);
    }
  }
};

}  // namespace moelink

// Dispatch of many tokens in one launch. A block has a contiguous range of tokens and
//  1. begins to read its first rows and entries, by two warps (entries alone, where rows are quantised or weighted),
//     while the others
//  2. learn how many entries of each expert the blocks before have, and all. Either every block reads all ids
//     (`every_block_counts`: as long as that takes no longer than barriers do), or, in a resident grid,
//      a. counts its own entries into its row of the matrix counts[block][expert]; grid barrier;
//      b. sums some columns of the matrix: what the blocks before have of an expert (in place), and the expert's total;
//         grid barrier,
//  3. sums the totals, aligned, over the experts, which gives the next row of each expert; publishes offsets and counts
//     of some of the experts,
//  4. walks its tokens in order: one of the two warps takes the next row of each entry's expert, the other copies rows
//     through a ring in scratch; the rest mark the pads of those experts.
//
// Ordering: the matrix is written before a grid barrier and read behind it. Within an expert, rows go by block, and by
// entry within a block: token order, since ranges ascend. Each row, entry and expert is written by one block.
//
// Few rows are loaded ahead of routing (TokenRows::kEarlyBytes): ids and barriers would queue behind all that the ring
// can hold (docs/decisions/0003-decode-routing.md).
//
// Memory owned: block scratch (PrefillScratch); block_counts and the grid barrier of the workspace. Nothing is kept
// between launches.
#pragma once

#include "moelink/device/exec/block_parts.cuh"
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
    const bool every_block_counts = args.every_block_counts != 0;
    // The first ids before anything else: a division would hold them up.
    Counted counted{0, num_tokens * spec().top_k};
    if (!every_block_counts) counted = Counted(TokenRange(ex, num_tokens), spec().top_k);
    const auto counters = counting_part(ex, spec);
    const bool counts = !Exec::kIsDevice || ex.warp() >= TokenRows<Exec, S>::kMovers;
    Ids ids;
    if (counts) {
      ids.load(args.expert_ids, args.id_bytes, counted.first + counters.thread(), counters.num_threads(), counted.end);
    }
    const TokenRange range(ex, num_tokens);
    const PrefillScratch at(spec().num_experts, every_block_counts, args.ring_bytes);
    u8* scratch = static_cast<u8*>(ex.scratch());
    u32* next = reinterpret_cast<u32*>(scratch + at.experts);
    u32* totals = reinterpret_cast<u32*>(scratch + at.totals);
    u32* warp_sums = reinterpret_cast<u32*>(scratch + at.warp_sums);

    TokenRows<Exec, S> token_rows(spec, args, at, scratch, range);
    EntryHash hash;
    const Finder<S> finder{spec, args, RowLimits(args), next, &hash};
    auto some = token_rows.begin(ex, finder);
    if (counts) {
      clear_words(counters, next, spec().num_experts + 2);
      if (every_block_counts) clear_words(counters, totals, spec().num_experts + 2);
      counters.sync_block();
      // Each entry adds to one counter; totals lack those below until all are counted.
      const i32 split = every_block_counts ? range.first * spec().top_k : counted.end;
      count_entries(counters, spec, args, counted, split, ids, next, totals);
    }
    ex.sync_block();
    if (every_block_counts) {
      for (i32 e = ex.thread(); e <= spec().num_experts; e += ex.num_threads()) totals[e] += next[e];
      ex.sync_block();
      find_first_rows(ex, spec, args, next, totals, next, warp_sums);
    } else {
      u32* row = args.block_counts + matrix_row(spec, ex.block());
      for (i32 e = ex.thread(); e <= spec().num_experts; e += ex.num_threads()) row[e] = next[e];
      bool all_came = grid_barrier(ex, args.grid_barrier, args.fault);
      if (all_came) {
        sum_columns(ex, spec, args);
        all_came = grid_barrier(ex, args.grid_barrier, args.fault);
      }
      if (!all_came) {
        token_rows.abandon(ex);
        clear_experts(ex, spec, args);
        return;
      }
      find_first_rows(ex, spec, args, args.block_counts + matrix_row(spec, ex.block()),
                      args.block_counts + matrix_row(spec, ex.num_blocks()), next, warp_sums);
    }
    ex.sync_block();
    token_rows.move(ex, finder, some);
    if (spec().is_part) publish_digest_part(ex, args, num_tokens, hash, token_rows.finding_warp());
    if (has_pads(args)) mark_pads(ex, spec, args, token_rows.busy_warps(ex));
    if (ex.block() == 0 && ex.thread() == 0) publish_token_count(args, given_tokens, num_tokens);
    phase.advance(args.status);
  }

 private:
  static constexpr int kIdsAtOnce = 10;  ///< of one thread
  using Ids = IdBatch<kIdsAtOnce>;

  /// The executor of the warps that count. Those that move rows begin to read them meanwhile: the block's first wait is
  /// not for that.
  template <class Exec, class S>
  MOELINK_DEVICE static auto counting_part(const Exec& ex, S) {
#if MOELINK_ON_DEVICE
    (void)ex;
    constexpr int kFirst = TokenRows<Exec, S>::kMovers * Exec::kWarpSize;
    return PartExec<kFirst, S{}().threads - kFirst, 2>();
#else
    return ex;
#endif
  }

  /// The entries that a block counts.
  struct Counted {
    i32 first;
    i32 end;
    MOELINK_DEVICE Counted(i32 first_entry, i32 end_entry) : first(first_entry), end(end_entry) {}
    MOELINK_DEVICE Counted(const TokenRange& range, i32 top_k) : first(range.first * top_k), end(range.end * top_k) {}
  };

  /// Gives each entry the next row of its expert.
  template <class S>
  struct Finder {
    struct Loaded {
      IdWords id;  // raw
      float weight = 1.0F;
    };

    S spec;
    const Args& args;
    RowLimits limits;
    u32* next;
    EntryHash* hash;  // this thread's sum

    MOELINK_DEVICE Loaded load(i64 entry) const {
      return {load_raw_id(args.expert_ids, args.id_bytes, entry), load_weight(args, entry)};
    }

    template <class Exec>
    MOELINK_DEVICE Placement place(const Exec& ex, i64 entry, const Loaded& loaded) const {
      const IdWords id = loaded.id.widened(args.id_bytes);
      const u16 code = entry < 0 ? kSkippedCode : code_of(spec, args, id);
      const u32 taken = take_next(ex, next, code, spec().num_experts);
      if (entry < 0) return {};
      if (spec().is_part) hash->add(entry, id, loaded.weight);
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

  /// Adds each of the `counted` entries to its counter (counter_of()): in `below` if before entry `split`, else in
  /// `others`. `ids`: the thread's first, under way.
  template <class Exec, class S>
  MOELINK_DEVICE static void count_entries(const Exec& ex, S spec, const Args& args, Counted counted, i32 split,
                                           Ids& ids, u32* below, u32* others) {
    const i32 step = ex.num_threads();
    for (i64 from = counted.first + ex.thread(); from < counted.end; from += kIdsAtOnce * step) {
      const Ids now = ids;
      ids.load(args.expert_ids, args.id_bytes, from + kIdsAtOnce * step, step, counted.end);
      const i32 left = counted.end - static_cast<i32>(from);
      const i32 left_below = split - static_cast<i32>(from);
      MOELINK_UNROLL
      for (int i = 0; i < kIdsAtOnce; ++i) {
        if (i * step >= left) break;
        const u32 counter = counter_of(spec, args, now.get(i, args.id_bytes));
        scratch_add(ex, &(i * step < left_below ? below : others)[counter], 1);
      }
    }
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

  /// How many blocks, from the first, say what is known about experts, in turns: a power of two. (A division would be
  /// on the way to the first row.)
  template <class Exec>
  MOELINK_DEVICE static i32 num_publishers(const Exec& ex) {
    return 1 << floor_log2(static_cast<u32>(ex.num_blocks()));
  }

  /// The first row of this block's entries of each expert, into scratch; `below_block` may be `next` itself. A thread
  /// has some neighbouring experts.
  template <class Exec, class S>
  MOELINK_DEVICE static void find_first_rows(const Exec& ex, S spec, const Args& args, const u32* below_block,
                                             const u32* totals, u32* next, u32* warp_sums) {
    const RowLimits limits(args);
    const i32 num_experts = spec().num_experts;
    const i32 publishers = num_publishers(ex);
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
      if ((e & (publishers - 1)) == ex.block()) {
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
    const i32 publishers = num_publishers(ex);
    if (ex.warp() < first_warp || ex.block() >= publishers) return;
    for (i32 e = ex.block(); e < spec().num_experts; e += publishers) {
      const u32 first = static_cast<u32>(args.offsets[e]);
      const u32 kept = static_cast<u32>(args.counts[e]);
      fill_pads(ex, spec, args, first + kept, limits.end_of_pads(first, kept), ex.warp() - first_warp,
                ex.num_warps() - first_warp);
    }
  }
};

}  // namespace moelink

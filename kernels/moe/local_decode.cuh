// Dispatch of few tokens in one launch without a barrier between blocks.
//
// A block has one part of one token's row (or, if the grid is smaller, one after the other). Every block
//  1. begins to load its part of the row; nothing is waited for,
//  2. reads all ids and counts them per expert in its scratch, those before its token apart,
//  3. finds the row of each of its token's k entries: rows of the experts below, and earlier entries of the same expert
//     (one warp an entry). For its next token, if it has one, the entries in between are counted again,
//  4. stores its part to those rows; the token's first part also stores scales and what is known about the entries,
//  5. marks the pads of some of the experts. The last block publishes offsets, counts, the token count, data errors and
//     the phase. A grid with a block to spare has it do nothing else: late stores are what a kernel's end waits for.
//
// Ordering: every block derives the same places from the same ids, so that none waits for another. Each row part, entry
// and expert is written by one block. The ids are read by all: the repetition costs less than a barrier as long as they
// fit a few kilobytes (docs/decisions/0003-decode-routing.md).
//
// Memory owned: block scratch (DecodeScratch). Nothing is kept between launches.
#pragma once

#include "moelink/device/exec/block_parts.cuh"
#include "moelink/device/moe/experts.cuh"
#include "moelink/device/moe/routing.cuh"
#include "moelink/device/moe/routing_digest.cuh"
#include "moelink/device/moe/token_part.cuh"
#include "moelink/device/primitives/stable_rank.cuh"
#include "moelink/protocol/local_scratch.hpp"

namespace moelink {

/// Who does what in a block: all threads do everything.
template <bool kTwoHalves, class Exec, class S>
struct DecodeRoles {
  static constexpr bool kApart = false;
  using Shape = PartShape<Exec, S>;
  using Part = TokenPart<Exec, S>;
  using Weights = TokenWeights<Exec>;

  MOELINK_DEVICE static constexpr bool routes() { return true; }
  MOELINK_DEVICE static constexpr bool moves() { return true; }
  MOELINK_DEVICE static const Exec& router(const Exec& ex) { return ex; }
  MOELINK_DEVICE static const Exec& mover(const Exec& ex) { return ex; }
  MOELINK_DEVICE static S part_spec(S spec) { return spec; }
};

#if MOELINK_ON_DEVICE

/// The first half of the threads routes while the second quantises what it has read. Both wait for memory first, and
/// take about as long then.
template <class Exec, class S>
struct DecodeRoles<true, Exec, S> {
  static constexpr bool kApart = true;
  static constexpr auto kPartSpec = of_half_a_block(S{}());
  using Router = HalfExec<0, kPartSpec.threads>;
  using Mover = HalfExec<1, kPartSpec.threads>;
  using PartSpec = Static<kPartSpec>;
  using Shape = PartShape<Mover, PartSpec>;
  using Part = TokenPart<Mover, PartSpec>;
  using Weights = TokenWeights<Router>;

  MOELINK_DEVICE static bool routes() { return Router::is_this(); }
  MOELINK_DEVICE static bool moves() { return Mover::is_this(); }
  MOELINK_DEVICE static Router router(const Exec&) { return {}; }
  MOELINK_DEVICE static Mover mover(const Exec&) { return {}; }
  MOELINK_DEVICE static PartSpec part_spec(S) { return {}; }
};

template <class Exec, class S>
inline constexpr bool kRoutesApart = S{}().quantize != QuantFormat::none;
#else
template <class Exec, class S>
inline constexpr bool kRoutesApart = false;  // a block is one thread
#endif

struct LocalDecode {
  using Spec = LocalDispatchSpec;
  using Args = LocalDispatchArgs;
  static constexpr const char* kName = "LocalDecode";
  static constexpr const char* kHeader = "moelink/device/moe/local_decode.cuh";

  static constexpr int kIdsAtOnce = 8;  ///< of one thread
  using Ids = IdBatch<kIdsAtOnce>;

  /// The block's scratch, as pointers.
  struct Scratch {
    u32* below;
    u32* others;
    u16* codes;
    i32* rows;
    float* weights;

    template <class Exec, class S>
    MOELINK_DEVICE Scratch(const Exec& ex, S spec) {
      const DecodeScratch at(spec().num_experts);
      u8* base = static_cast<u8*>(ex.scratch());
      below = reinterpret_cast<u32*>(base + at.below);
      others = reinterpret_cast<u32*>(base + at.others);
      codes = reinterpret_cast<u16*>(base + at.codes);
      rows = reinterpret_cast<i32*>(base + at.rows);
      weights = reinterpret_cast<float*>(base + at.weights);
    }
  };

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    using Roles = DecodeRoles<kRoutesApart<Exec, S>, Exec, S>;
    const auto router = Roles::router(ex);
    const auto mover = Roles::mover(ex);
    const auto part_spec = Roles::part_spec(spec);
    Ids ids;  // the first that this thread counts
    if (Roles::routes()) {
      ids.load(args.expert_ids, args.id_bytes, router.thread(), router.num_threads(), args.num_tokens * spec().top_k);
    }
    const typename Roles::Shape shape(part_spec, args);
    const i32 num_items = args.num_tokens << shape.log2_parts;
    typename Roles::Part part(part_spec);
    typename Roles::Weights weights;
    const auto load = [&](i32 index) {
      if (Roles::moves()) part.load(mover, part_spec, args, shape, index);
      if (Roles::routes()) weights.load(router, args.weights, index >> shape.log2_parts, spec().top_k);
    };
    if (ex.block() < num_items) load(ex.block());
    const bool is_last = ex.block() == ex.num_blocks() - 1;
    const PhaseWord phase(ex, is_last, args.phase, PhaseWord::Call::dispatch);
    const i32 given_tokens = load_token_count(args);
    const i32 num_tokens = clamp_token_count(args, given_tokens);

    const Scratch scratch(ex, spec);
    const i32 end = num_tokens * spec().top_k;
    i32 counted = ex.block() < num_items ? ex.block() >> shape.log2_parts : 0;  // the token that `below` is before
    if (Roles::routes()) count_entries(router, spec, args, end, counted * spec().top_k, ids, scratch);
    for (i32 index = ex.block(); index < num_items; index += ex.num_blocks()) {
      const i32 token = index >> shape.log2_parts;
      if (index != ex.block()) {
        load(index);
        if (Roles::routes() && token < num_tokens) go_on(router, spec, args, counted, token, scratch);
        counted = token;
      }
      if (Roles::moves()) part.quantize(mover, part_spec);
      if (Roles::routes()) {
        find_rows(router, spec, args, scratch);
        weights.store(router, spec, scratch.weights);
      }
      ex.sync_block();
      if (token < num_tokens) {
        if (Roles::moves()) part.store(mover, part_spec, args, scratch.rows, scratch.weights);
        if (Roles::routes() && shape.is_first(index)) publish_entries(router, spec, args, token, weights, scratch);
      }
      if (index + ex.num_blocks() < num_items) ex.sync_block();
    }
    if (Roles::kApart && ex.block() >= num_items) ex.sync_block();  // its halves have not met yet
    if (!has_pads(args) && !is_last) return;
    if (ex.block() < num_items) add_up(ex, spec, scratch);  // else nothing is below
    const u32* totals = scratch.others;
    if (has_pads(args)) fill_all_pads(ex, spec, args, totals);
    if (is_last) {
      const u32 dropped = publish_experts(ex, spec, args, totals);
      report_dropped(ex, spec, args, dropped, reinterpret_cast<u32*>(scratch.rows));
      if (ex.thread() == 0) report(&args.status->ids_out_of_range, totals[spec().num_experts]);
      if (spec().is_part) digest_all(ex, spec, args, num_tokens, reinterpret_cast<u32*>(scratch.rows));
      if (ex.thread() == 0) publish_token_count(args, given_tokens, num_tokens);
      phase.advance(args.status);
    }
  }

 private:
  /// Counts the entries before `end` per expert: those before `first_own`, and the others. Also finds the codes of the
  /// token that begins there. `ids`: the thread's first, under way.
  template <class Exec, class S>
  MOELINK_DEVICE static void count_entries(const Exec& ex, S spec, const Args& args, i32 end, i32 first_own, Ids& ids,
                                           const Scratch& scratch) {
    const i32 step = ex.num_threads();
    clear_words(ex, scratch.below, spec().num_experts + 2);
    clear_words(ex, scratch.others, spec().num_experts + 2);
    ex.sync_block();
    for (i32 first = ex.thread(); first < end;) {
      MOELINK_UNROLL
      for (int i = 0; i < kIdsAtOnce; ++i) {
        const i32 entry = first + i * step;
        if (entry >= end) break;
        const u32 code = counter_of(spec, args, ids.get(i, args.id_bytes));
        const u32 k = static_cast<u32>(entry - first_own);
        if (k < static_cast<u32>(spec().top_k)) scratch.codes[k] = static_cast<u16>(code);
        scratch_add(ex, &(entry < first_own ? scratch.below : scratch.others)[code], 1);
      }
      first += kIdsAtOnce * step;
      ids.load(args.expert_ids, args.id_bytes, first, step, end);
    }
    ex.sync_block();
  }

  /// From counts and codes as of token `from` to those of token `to`, a later one or the same. A block barrier after
  /// the last use of them.
  template <class Exec, class S>
  MOELINK_DEVICE static void go_on(const Exec& ex, S spec, const Args& args, i32 from, i32 to, const Scratch& scratch) {
    const i32 first_own = to * spec().top_k;
    const i32 end = first_own + spec().top_k;
    MOELINK_NO_UNROLL
    for (i32 entry = from * spec().top_k + ex.thread(); entry < end; entry += ex.num_threads()) {
      const u32 code = counter_of(spec, args, load_id(args, entry));
      if (entry >= first_own) {
        scratch.codes[entry - first_own] = static_cast<u16>(code);
      } else {
        scratch_add(ex, &scratch.below[code], 1);
        scratch_add(ex, &scratch.others[code], ~0U);
      }
    }
    ex.sync_block();
  }

  /// By the block: adds the entries below to the others.
  template <class Exec, class S>
  MOELINK_DEVICE static void add_up(const Exec& ex, S spec, const Scratch& scratch) {
    for (i32 e = ex.thread(); e <= spec().num_experts; e += ex.num_threads()) scratch.others[e] += scratch.below[e];
    ex.sync_block();
  }

  /// The rows of the token's entries, or -1: one warp an entry. Of a token past the count, codes are whatever was there:
  /// any value stays within the counters, and its rows are not used.
  template <class Exec, class S>
  MOELINK_DEVICE static void find_rows(const Exec& ex, S spec, const Args& args, const Scratch& scratch) {
    const RowLimits limits(args);
    for (i32 k = ex.warp(); k < spec().top_k; k += ex.num_warps()) {
      const u16 code = scratch.codes[k];
      // Also for a code that is no expert's: a branch would wait for it.
      u32 rows_before = count_equal(ex, scratch.codes, k, code);
      if (limits.packed()) {
        rows_before += sum_aligned_pairs(ex, scratch.below, scratch.others, spec().num_experts, code, limits.alignment);
      }
      const u32 of_earlier_tokens = scratch.below[min_of<i32>(code, spec().num_experts)];
      const u32 place = warp_sum(ex, rows_before) + of_earlier_tokens + (limits.packed() ? 0 : limits.first(code, 0));
      const bool kept = code < spec().num_experts && place < limits.end(code);
      const i32 row = kept ? static_cast<i32>(place) : -1;
      if (ex.lane() == 0) scratch.rows[k] = row;
    }
  }

  template <class Exec, class S>
  MOELINK_DEVICE static void publish_entries(const Exec& ex, S spec, const Args& args, i32 token,
                                             const TokenWeights<Exec>& weights, const Scratch& scratch) {
    for (i32 k = ex.thread(); k < spec().top_k; k += ex.num_threads()) {
      const i32 entry = token * spec().top_k + k;
      publish_entry(args, entry, scratch.rows[k], scratch.codes[k], weights.get(k));
    }
  }
};

}  // namespace moelink

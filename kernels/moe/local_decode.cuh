// Dispatch of few tokens in one launch without a barrier between blocks.
//
// A block has one part of one token's row (or, if the grid is smaller, one after the other). Every block
//  1. begins to load its part of the row; nothing is waited for,
//  2. reads all ids and counts them per expert in its scratch,
//  3. finds the row of each of its token's k entries: rows of the experts below, and earlier entries of the same expert
//     (one warp an entry),
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

  static constexpr int kIdsAtOnce = 4;  ///< of one thread
  using Ids = IdBatch<kIdsAtOnce>;

  /// The block's scratch, as pointers.
  struct Scratch {
    u32* counts;
    u16* codes;
    i32* rows;
    float* weights;

    template <class Exec, class S>
    MOELINK_DEVICE Scratch(const Exec& ex, S spec, const Args& args) {
      const DecodeScratch at(spec().num_experts, args.num_tokens * spec().top_k);
      u8* base = static_cast<u8*>(ex.scratch());
      counts = reinterpret_cast<u32*>(base + at.counts);
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

    const Scratch scratch(ex, spec, args);
    if (Roles::routes()) count_entries(router, spec, args, num_tokens * spec().top_k, ids, scratch);
    for (i32 index = ex.block(); index < num_items; index += ex.num_blocks()) {
      const i32 token = index >> shape.log2_parts;
      if (index != ex.block()) load(index);
      if (Roles::moves()) part.quantize(mover, part_spec);
      if (Roles::routes()) {
        find_rows(router, spec, args, token, scratch);
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
    if (has_pads(args)) fill_all_pads(ex, spec, args, scratch.counts);
    if (is_last) {
      const u32 dropped = publish_experts(ex, spec, args, scratch.counts);
      report_dropped(ex, spec, args, dropped, reinterpret_cast<u32*>(scratch.rows));
      report_out_of_range(ex, spec, args, scratch.codes);
      if (spec().is_part) digest_all(ex, spec, args, num_tokens, reinterpret_cast<u32*>(scratch.rows));
      if (ex.thread() == 0) publish_token_count(args, given_tokens, num_tokens);
      phase.advance(args.status);
    }
  }

 private:
  /// All ids as codes, and how many there are of each expert. Entries from `end` on are skipped. `ids`: the thread's
  /// first, under way.
  template <class Exec, class S>
  MOELINK_DEVICE static void count_entries(const Exec& ex, S spec, const Args& args, i32 end, Ids& ids,
                                           const Scratch& scratch) {
    const i32 bound = args.num_tokens * spec().top_k;
    const i32 step = ex.num_threads();
    clear_words(ex, scratch.counts, spec().num_experts);
    ex.sync_block();
    for (i32 first = ex.thread(); first < bound;) {
      MOELINK_UNROLL
      for (int i = 0; i < kIdsAtOnce; ++i) {
        const i32 entry = first + i * step;
        if (entry >= bound) break;
        const u16 code = entry < end ? code_of(spec, args, ids.ids[i]) : kSkippedCode;
        scratch.codes[entry] = code;
        if (code < spec().num_experts) scratch_add(ex, &scratch.counts[code], 1);
      }
      first += kIdsAtOnce * step;
      ids.load(args.expert_ids, args.id_bytes, first, step, bound);
    }
    ex.sync_block();
  }

  /// The rows of one token's entries, or -1: one warp an entry.
  template <class Exec, class S>
  MOELINK_DEVICE static void find_rows(const Exec& ex, S spec, const Args& args, i32 token, const Scratch& scratch) {
    const RowLimits limits(args);
    for (i32 k = ex.warp(); k < spec().top_k; k += ex.num_warps()) {
      const i32 entry = token * spec().top_k + k;
      const u16 code = scratch.codes[entry];
      // Also for a code that is no expert's: a branch would wait for it.
      u32 rows_before = count_equal(ex, scratch.codes, entry, code);
      if (limits.packed()) rows_before += rows_of_experts_below(ex, spec, scratch.counts, code, limits.alignment);
      const u32 place = warp_sum(ex, rows_before) + (limits.packed() ? 0 : limits.first(code, 0));
      const bool kept = code < spec().num_experts && place < limits.end(code);
      const i32 row = kept ? static_cast<i32>(place) : -1;
      if (ex.lane() == 0) scratch.rows[k] = row;
    }
  }

  /// This lane's share.
  template <class Exec, class S>
  MOELINK_DEVICE static u32 rows_of_experts_below(const Exec& ex, S spec, const u32* counts, u16 code, u32 alignment) {
    if constexpr (Exec::kIsDevice) {
      constexpr int kExperts = spec().num_experts;
      if constexpr (kExperts <= 512) return sum_aligned_of<kExperts>(ex, counts, code, alignment);
    }
    return sum_aligned(ex, counts, min_of<i32>(code, spec().num_experts), alignment);
  }

  template <class Exec, class S>
  MOELINK_DEVICE static void publish_entries(const Exec& ex, S spec, const Args& args, i32 token,
                                             const TokenWeights<Exec>& weights, const Scratch& scratch) {
    for (i32 k = ex.thread(); k < spec().top_k; k += ex.num_threads()) {
      const i32 entry = token * spec().top_k + k;
      publish_entry(args, entry, scratch.rows[k], scratch.codes[entry], weights.get(k));
    }
  }

  template <class Exec, class S>
  MOELINK_DEVICE static void report_out_of_range(const Exec& ex, S spec, const Args& args, const u16* codes) {
    if (ex.warp() != 0) return;
    const u32 sum = warp_sum(ex, count_equal(ex, codes, args.num_tokens * spec().top_k, kOutOfRangeCode));
    if (ex.lane() == 0) report(&args.status->ids_out_of_range, sum);
  }
};

}  // namespace moelink

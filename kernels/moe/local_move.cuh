// Dispatch that reuses the last routing: other tokens to the same rows.
//
// Few tokens (`parts` > 0): a block has one part of one token's row, loads it while it reads the places of the token's
// entries from the snapshot, and stores it there. Many: a block has a contiguous range of tokens and copies rows
// through the ring as they arrive. Either way pads are cleared again on request: the rows buffer may be another one.
//
// Ordering: nothing is shared between blocks. The snapshot was written by an earlier launch.
// Memory owned: block scratch (PrefillScratch, without experts).
#pragma once

#include "moelink/device/moe/experts.cuh"
#include "moelink/device/moe/token_part.cuh"
#include "moelink/device/moe/token_rows.cuh"

namespace moelink {

struct LocalMove {
  using Spec = LocalDispatchSpec;
  using Args = LocalDispatchArgs;
  static constexpr const char* kName = "LocalMove";
  static constexpr const char* kHeader = "moelink/device/moe/local_move.cuh";

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    const PhaseWord phase(ex, ex.block() == 0, args.phase, PhaseWord::Call::dispatch);
    const i32 num_tokens = min_of(*args.num_tokens_snapshot, args.num_tokens);
    const PrefillScratch at(0, false, args.ring_bytes);
    u8* scratch = static_cast<u8*>(ex.scratch());
    if (args.parts > 0) {
      move_parts(ex, spec, args, num_tokens, reinterpret_cast<i32*>(scratch + at.rows),
                 reinterpret_cast<float*>(scratch + at.weights));
    } else {
      TokenRows<Exec, S> token_rows(spec, args, at, scratch, TokenRange(ex, num_tokens));
      const Finder finder{args, total_rows(spec, args)};
      auto some = token_rows.begin(ex, finder);
      token_rows.move(ex, finder, some);
    }
    if (args.zero_pads != 0 && has_pads(args)) clear_pads(ex, spec, args);
    // Nothing is dropped anew.
    if (spec().is_part && ex.block() == 0 && ex.thread() == 0) args.digest->num_dropped = 0;
    phase.advance(args.status);
  }

 private:
  /// The row of each entry as the snapshot has it. One of another call must not reach past this call's rows.
  struct Finder {
    struct Loaded {
      i32 row = -1;
      float weight = 1.0F;
    };

    const Args& args;
    i64 end;

    MOELINK_DEVICE Loaded load(i64 entry) const { return {args.row_of_entry[entry], args.weight_of_entry[entry]}; }
    template <class Exec>
    MOELINK_DEVICE Placement place(const Exec&, i64, const Loaded& loaded) const {
      return {loaded.row < end ? loaded.row : -1, loaded.weight};
    }
  };

  /// `rows`, `weights`: block scratch for one token.
  template <class Exec, class S>
  MOELINK_DEVICE static void move_parts(const Exec& ex, S spec, const Args& args, i32 num_tokens, i32* rows,
                                        float* weights) {
    const PartShape<Exec, S> shape(spec, args);
    const Finder finder{args, total_rows(spec, args)};
    TokenPart<Exec, S> part(spec);
    TokenWeights<Exec> token_weights;
    for (i32 index = ex.block(); index < num_tokens << shape.log2_parts; index += ex.num_blocks()) {
      part.load(ex, spec, args, shape, index);
      part.quantize(ex, spec);
      token_weights.load(ex, args.weight_of_entry, part.token(), spec().top_k);
      for (i32 k = ex.thread(); k < spec().top_k; k += ex.num_threads()) {
        const i64 entry = static_cast<i64>(part.token()) * spec().top_k + k;
        rows[k] = finder.place(ex, entry, finder.load(entry)).row;
      }
      token_weights.store(ex, spec, weights);
      ex.sync_block();
      part.store(ex, spec, args, rows, weights);
      ex.sync_block();
    }
  }

  template <class Exec, class S>
  MOELINK_DEVICE static void clear_pads(const Exec& ex, S spec, const Args& args) {
    const RowLimits limits(args);
    const u32 end = static_cast<u32>(total_rows(spec, args));
    const u32 num_warps = ex.num_blocks() * ex.num_warps();
    const u32 warp = ex.warp() * ex.num_blocks() + ex.block();
    for (i32 e = 0; e < spec().num_experts; ++e) {
      const u32 first = static_cast<u32>(args.offsets[e]);
      const u32 kept = static_cast<u32>(args.counts[e]);
      const u32 pads_end = min_of(limits.end_of_pads(first, kept), end);
      if (first + kept < pads_end) fill_pads(ex, spec, args, first + kept, pads_end, warp, num_warps);
    }
  }
};

}  // namespace moelink

// Dispatch that reuses the last routing: other tokens to the same rows. A block
//  1. begins to load the rows of a contiguous range of tokens,
//  2. reads their places from the snapshot and copies rows as they arrive,
//  3. clears pads again on request: the rows buffer may be another one.
//
// Ordering: nothing is shared between blocks. The snapshot was written by an earlier launch.
// Memory owned: block scratch (PrefillScratch, without experts).
#pragma once

#include "moelink/device/moe/experts.cuh"
#include "moelink/device/moe/token_rows.cuh"

namespace moelink {

struct LocalMove {
  using Spec = LocalDispatchSpec;
  using Args = LocalDispatchArgs;
  static constexpr const char* kName = "LocalMove";
  static constexpr const char* kHeader = "moelink/device/moe/local_move.cuh";

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    const PhaseWord phase(ex, args.phase, PhaseWord::Call::dispatch);
    const i32 num_tokens = min_of(*args.num_tokens_snapshot, args.num_tokens);
    const PrefillScratch at(0, args.ring_bytes);
    TokenRows<Exec, S> token_rows(spec, args, at, static_cast<u8*>(ex.scratch()), 1, TokenRange(ex, num_tokens));
    token_rows.start(ex);
    // A snapshot of another call's rows must not reach past this call's.
    const i64 end = total_rows(spec, args);
    token_rows.move(ex, [&](i64 entry) {
      if (entry < 0) return Placement{};
      const i32 row = args.row_of_entry[entry];
      return Placement{row < end ? row : -1, args.weight_of_entry[entry]};
    });
    if (args.zero_pads != 0 && has_pads(args)) clear_pads(ex, spec, args);
    phase.advance(args.status);
  }

 private:
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

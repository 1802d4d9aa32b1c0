// Combine: each token's output is the weighted sum of its rows (and of its row of `shared`, last). A block has one part of one token's output; the grid
// may be smaller than there are parts. Every block
//  1. reads the rows and weights of its token's entries from the snapshot,
//  2. loads its part of all those rows, then sums them in the order of k (primitives/row_reduce.cuh).
//
// Ordering: nothing is shared between blocks. The snapshot and the rows were written by earlier launches. A row that is
// past the call's rows (a snapshot of another call) adds nothing; tokens past the snapshot's count are left alone.
// Memory owned: none.
#pragma once

#include "moelink/device/moe/routing.cuh"
#include "moelink/device/primitives/row_reduce.cuh"

namespace moelink {

struct LocalCombine {
  using Spec = LocalCombineSpec;
  using Args = LocalCombineArgs;
  static constexpr const char* kName = "LocalCombine";
  static constexpr const char* kHeader = "moelink/device/moe/local_combine.cuh";

  template <class Exec, class S>
  MOELINK_DEVICE static void run(const Exec& ex, S spec, const Args& args) {
    constexpr i64 kStreamingBytes = 4 << 20;  // more than a host's caches keep for what comes next
    const PhaseWord phase(ex, ex.block() == 0, args.phase, PhaseWord::Call::combine);
    // Powers of two, because a division would delay the first load.
    const i32 log2_parts = floor_log2(static_cast<u32>(max_of(args.parts, 1)));
    const u32 num_rows = static_cast<u32>(min_of(args.expert_output_rows, static_cast<i64>(0x7fffffff)));
    const i64 num_items = static_cast<i64>(args.num_tokens) << log2_parts;
    for (i64 item = ex.block(); item < num_items; item += ex.num_blocks()) {
      const i32 token = static_cast<i32>(item >> log2_parts);
      const i32 part = static_cast<i32>(item) & ((1 << log2_parts) - 1);
      const i64 first_entry = static_cast<i64>(token) * spec().top_k;
      reduce_row(ex, spec,
                 RowSum{.rows = static_cast<const u8*>(args.expert_output),
                        .row_stride_bytes = args.expert_output_stride_bytes,
                        .num_rows = num_rows,
                        .indices = args.row_of_entry + first_entry,
                        .weights = args.weighted != 0 ? args.weight_of_entry + first_entry : nullptr,
                        .shared = args.shared == nullptr ? nullptr
                                                         : static_cast<const u8*>(args.shared) +
                                                               static_cast<i64>(token) * args.shared_stride_bytes,
                        .output = static_cast<u8*>(args.output) + token * args.output_stride_bytes,
                        .accumulate = args.accumulate != 0,
                        .num_tokens = args.num_tokens_snapshot,
                        .token = token,
                        .streaming = args.num_tokens * args.output_stride_bytes >= kStreamingBytes},
                 part, log2_parts);
    }
    phase.advance(args.status);
  }
};

}  // namespace moelink

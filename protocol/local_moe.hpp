// What the host and the kernels of the local mode agree on: specs (compile-time on GPUs) and arguments.
//
// An entry is one (token, k) pair; entry index = token * top_k + k. A row is a place in the expert-major output.
#pragma once

#include "moelink/protocol/element.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// Device words of one Exchange that report data errors and order. Counters only grow. `host` is pinned host memory the
/// device can write (or plain memory on the host backend); kernels touch it only when there is something to report.
struct ExchangeStatus {
  u64 ids_out_of_range;
  u64 rows_over_capacity;
  u64 token_counts_clamped;
  u64 calls_out_of_order;
};

/// Layouts as kernels know them.
enum class RowLayout : i32 { packed, batched };

/// Specialises the dispatch kernels: only what changes code.
struct LocalDispatchSpec {
  i64 row_bytes = 0;      ///< bytes moved per row, a multiple of 16
  i32 scale_bytes = 0;    ///< bytes per token that travel with the row
  i32 num_experts = 0;
  i32 top_k = 0;
  i32 threads = 0;        ///< block size
  Element weighted = Element::none;  ///< element type if rows are multiplied by their weight on the way in

  constexpr auto fields(auto&& visit) const {
    return visit(row_bytes, scale_bytes, num_experts, top_k, threads, weighted);
  }
};

/// Arguments of the dispatch kernels (decode, prefill, and move-only for reused routing).
struct LocalDispatchArgs {
  // From the caller.
  const void* tokens;              ///< [num_tokens, row_bytes]
  i64 token_stride_bytes;
  const void* scales;              ///< [num_tokens, scale_bytes] or null
  i64 scale_stride_bytes;
  const void* expert_ids;          ///< [num_tokens, top_k] dense
  i32 id_bytes;                    ///< 4 or 8
  const float* weights;            ///< [num_tokens, top_k] dense, or null (1)
  const i32* device_num_tokens;    ///< device-side count or null
  i32 num_tokens;                  ///< the count, or its upper bound
  // Where rows go.
  RowLayout layout;
  i32 alignment;                   ///< packed: power of two
  i32 zero_pads;
  i64 max_rows;                    ///< packed: rows in all; batched: rows per expert
  void* rows;
  i64 row_stride_bytes;
  void* row_scales;                ///< [rows, scale_bytes] dense, or null
  i64* offsets;                    ///< [num_experts + 1]
  i32* counts;                     ///< [num_experts]
  i32* expert_of_row;
  float* weight_of_row;
  i64* source_of_row;
  // Private snapshot that combine reads.
  i32* row_of_entry;               ///< [max_tokens * top_k]: row, or -1 if skipped or dropped
  float* weight_of_entry;          ///< [max_tokens * top_k]
  i32* num_tokens_snapshot;
  // Workspace.
  u64* grid_barrier;               ///< one GridBarrierWord, zero at construction
  void* block_counts;              ///< prefill: per block and expert counts (see the kernel)
  u64* phase;                      ///< device word: calls completed, dispatch makes it odd, combine even
  ExchangeStatus* status;
};

/// Specialises combine.
struct LocalCombineSpec {
  i64 hidden = 0;          ///< elements per row
  i32 top_k = 0;
  i32 threads = 0;
  Element input = Element::bfloat16;
  Element output = Element::bfloat16;

  constexpr auto fields(auto&& visit) const { return visit(hidden, top_k, threads, input, output); }
};

/// Arguments of combine.
struct LocalCombineArgs {
  const void* expert_output;       ///< rows at the positions dispatch gave out
  i64 expert_output_stride_bytes;
  void* output;                    ///< [num_tokens, hidden]
  i64 output_stride_bytes;
  i32 accumulate;                  ///< start from what output holds
  i32 weighted;                    ///< multiply by weight_of_entry
  i32 num_tokens;                  ///< upper bound (the call's tokens.rows)
  const i32* num_tokens_snapshot;
  const i32* row_of_entry;
  const float* weight_of_entry;
  u64* phase;
  ExchangeStatus* status;
};

}  // namespace moelink

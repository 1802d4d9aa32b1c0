// What the host and the kernels of the local mode agree on: specs (compile-time on GPUs) and arguments.
//
// An entry is one (token, k) pair; entry index = token * top_k + k. A row is a place in the expert-major output.
#pragma once

#include "moelink/protocol/element.hpp"
#include "moelink/protocol/fault.hpp"
#include "moelink/protocol/quant.hpp"
#include "moelink/protocol/types.hpp"

namespace moelink {

/// Words of one Exchange that report data errors and order: pinned host memory that the device can write (plain memory
/// on the host backend). Counters only grow; the host only reads. Kernels touch them only when there is something to
/// report, one thread of a launch each: there are no atomics on host memory that work on every machine.
struct ExchangeStatus {
  u64 ids_out_of_range;
  u64 rows_over_capacity;
  u64 token_counts_clamped;
  u64 calls_out_of_order;
  u64 entries_dropped_by_peers;  ///< modes with several ranks
  u64 peer_counts_clamped;       ///< likewise
};

struct GridBarrierWord;  // moelink/device/sync/grid_barrier.cuh

/// Layouts as kernels know them.
enum class RowLayout : i32 { packed, batched };

/// What a dispatch of replicated inputs leaves for the ranks to compare: a hash of token count, ids and weights, as
/// parts that are added up (halves of 32 bits apart), and the entries of this rank's experts that found no room.
struct RoutingDigest {
  static constexpr i32 kMaxParts = 1022;

  u64 num_parts;
  u64 num_dropped;
  u64 parts[kMaxParts];
};

/// Specialises the dispatch kernels: only what changes code.
struct LocalDispatchSpec {
  i64 row_bytes = 0;    ///< bytes moved per row, a multiple of 16
  i32 scale_bytes = 0;  ///< bytes per token that travel with the row
  i32 num_experts = 0;
  i32 top_k = 0;
  i32 threads = 0;                   ///< block size, a multiple of 32
  Element weighted = Element::none;  ///< element type if rows are multiplied by their weight on the way in
  /// LocalDecode, LocalPrefill: tokens are elements of type `input`, rows are made of them; row_bytes and scale_bytes
  /// are the format's.
  QuantFormat quantize = QuantFormat::none;
  Element input = Element::none;
  bool is_part = false;  ///< replicated inputs: ids name num_global_experts, of which num_experts are here (arguments)

  constexpr auto fields(auto&& visit) const {
    return visit(row_bytes, scale_bytes, num_experts, top_k, threads, weighted, quantize, input, is_part);
  }
  /// Bytes of a token as the caller passes it.
  MOELINK_DEVICE constexpr i64 token_bytes() const { return row_bytes * token_bytes_per_byte(quantize); }
};

/// Arguments of the dispatch kernels: LocalDecode, LocalPrefill, and LocalMove (reused routing).
struct LocalDispatchArgs {
  // From the caller. Of these LocalMove reads tokens, scales and num_tokens only.
  const void* tokens;  ///< [num_tokens, row_bytes]
  i64 token_stride_bytes;
  const void* scales;  ///< [num_tokens, scale_bytes] or null
  i64 scale_stride_bytes;
  const void* expert_ids;        ///< [num_tokens, top_k] dense
  i32 id_bytes;                  ///< 4 or 8
  const float* weights;          ///< [num_tokens, top_k] dense, or null (1)
  const i32* device_num_tokens;  ///< device-side count or null
  i32 num_tokens;                ///< the count, or its upper bound
  i32 parts;                     ///< decode and move: blocks that share one row; move: 0: through the ring
  i32 ring_bytes;                ///< prefill and move on a GPU: block scratch that rows pass through (local_plan.hpp)
  i32 every_block_counts;        ///< prefill: every block reads all ids, instead of a grid barrier (local_plan.hpp)
  // Where rows go. Rows are numbered by 32 bits: rows in all and num_tokens * top_k are less than 2^31.
  RowLayout layout;
  i32 alignment;  ///< packed: power of two
  i32 zero_pads;
  i64 max_rows;  ///< packed: rows in all; batched: rows per expert (offsets are multiples of it)
  void* rows;
  i64 row_stride_bytes;
  void* row_scales;                     ///< [rows, scale_bytes] dense, or null
  const float* tensor_scale = nullptr;  ///< quantising to nvfp4: one value, or null: 1
  i64* offsets;  ///< [num_experts + 1]; LocalMove finds the pads by what the last routing wrote here
  i32* counts;   ///< [num_experts]; likewise
  i32* expert_of_row;
  float* weight_of_row;
  i64* source_of_row;
  // Private snapshot that combine and move read: -1 everywhere and 0 tokens at construction.
  i32* row_of_entry;       ///< [max_tokens * top_k]: row, or -1 if skipped or dropped
  float* weight_of_entry;  ///< [max_tokens * top_k]
  i32* num_tokens_snapshot;
  // Workspace.
  GridBarrierWord* grid_barrier;  ///< prefill: of this Exchange, zero at construction
  u32* block_counts;              ///< prefill: prefill_workspace_words(num_experts, largest grid) words, no contents
  u64* phase;                     ///< device word: calls completed, dispatch makes it odd, combine even
  ExchangeStatus* status;
  FaultContext fault;  ///< prefill: for a grid barrier that some block never reaches
  // Where inputs are replicated (LocalDispatchSpec::is_part). Entries of experts elsewhere are as if unused.
  i32 first_expert = 0;
  i32 num_global_experts = 0;
  RoutingDigest* digest = nullptr;
};

/// Words of LocalDispatchArgs::block_counts: a row of counts per block (of each expert, and of ids out of range), and
/// one of totals.
constexpr i64 prefill_workspace_words(i64 num_experts, i64 grid) { return (grid + 1) * round_up(num_experts + 1, 4L); }

/// Specialises combine.
struct LocalCombineSpec {
  i64 hidden = 0;  ///< elements per row
  i32 top_k = 0;
  i32 threads = 0;        ///< block size, a multiple of 32
  i32 blocks_per_sm = 1;  ///< blocks one SM should hold at once: bounds registers
  Element input = Element::bfloat16;
  Element output = Element::bfloat16;

  constexpr auto fields(auto&& visit) const { return visit(hidden, top_k, threads, blocks_per_sm, input, output); }
};

/// Arguments of combine.
struct LocalCombineArgs {
  const void* expert_output;  ///< rows at the positions dispatch gave out
  i64 expert_output_stride_bytes;
  i64 expert_output_rows;        ///< rows that may be read; entries whose row is past it add nothing
  const void* shared = nullptr;  ///< [num_tokens, hidden] of the input type, added behind the rows; or null
  i64 shared_stride_bytes = 0;
  void* output;  ///< [num_tokens, hidden]
  i64 output_stride_bytes;
  i32 accumulate;  ///< start from what output holds
  i32 weighted;    ///< multiply by weight_of_entry
  i32 num_tokens;  ///< upper bound; rows of output past the snapshot's count are left alone
  i32 parts;       ///< blocks that share one row, a power of two (local_plan.hpp)
  const i32* num_tokens_snapshot;
  const i32* row_of_entry;
  const float* weight_of_entry;
  u64* phase;
  ExchangeStatus* status;
};

}  // namespace moelink

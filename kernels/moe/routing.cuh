// What the local kernels share: how an entry is read, where its row may be, what is written about it.
#pragma once

#include "moelink/device/primitives/expert_code.cuh"
#include "moelink/device/primitives/warp.cuh"
#include "moelink/device/ptx/load_store.cuh"
#include "moelink/protocol/local_moe.hpp"

namespace moelink {

MOELINK_DEVICE IdWords load_id(const LocalDispatchArgs& args, i64 entry) {
  return load_id(args.expert_ids, args.id_bytes, entry);
}

/// Which of this rank's experts an id names, or why none.
template <class S>
MOELINK_DEVICE u16 code_of(S spec, const LocalDispatchArgs& args, const IdWords& id) {
  if (spec().is_part) return id.code(args.num_global_experts, args.first_expert, spec().num_experts);
  return id.code(spec().num_experts);
}

/// The same as a counter: beyond those of this rank's experts, num_experts counts ids out of range, num_experts + 1
/// what is skipped.
template <class S>
MOELINK_DEVICE u32 counter_of(S spec, const LocalDispatchArgs& args, const IdWords& id) {
  const u32 here = static_cast<u32>(spec().num_experts);
  if (!spec().is_part) return id.counter(here);
  return id.counter(static_cast<u32>(args.num_global_experts), static_cast<u32>(args.first_expert), here);
}

MOELINK_DEVICE float load_weight(const LocalDispatchArgs& args, i64 entry) {
  return args.weights == nullptr ? 1.0F : args.weights[entry];
}

/// The token count as the caller gave it: on the device, or with the call.
MOELINK_DEVICE i32 load_token_count(const LocalDispatchArgs& args) {
  return args.device_num_tokens == nullptr ? args.num_tokens : *args.device_num_tokens;
}
MOELINK_DEVICE i32 clamp_token_count(const LocalDispatchArgs& args, i32 count) {
  return min_of(max_of(count, 0), args.num_tokens);
}

/// Adds to a status word, if there is something to add. By one thread of the launch per word: launches of one Exchange
/// follow one another and the host only reads, so that no atomic is needed, which not every machine has for host memory
/// (and which took 1 us each where it worked).
MOELINK_DEVICE void report(u64* word, u64 amount) {
  if (amount != 0) st_relaxed_sys(word, ld_relaxed_sys(word) + amount);
}

/// Reports the sum over the block. By one block of the launch; `sum`: a word of scratch.
template <class Exec>
MOELINK_DEVICE void report_block_sum(const Exec& ex, u64* word, u32 amount, u32* sum) {
  if (ex.thread() == 0) *sum = 0;
  ex.sync_block();
  scratch_add(ex, sum, amount);
  ex.sync_block();
  if (ex.thread() == 0) report(word, *sum);
}

/// Reports how many entries found no room, the sum over the block. By one block of the launch; `sum`: a word of scratch.
template <class Exec, class S>
MOELINK_DEVICE void report_dropped(const Exec& ex, S spec, const LocalDispatchArgs& args, u32 dropped, u32* sum) {
  const bool any = ex.sync_block_or(dropped != 0);
  if (any) report_block_sum(ex, &args.status->rows_over_capacity, dropped, sum);
  if (spec().is_part && ex.thread() == 0) args.digest->num_dropped = any ? *sum : 0;
}

/// The phase word of the Exchange: even between calls pairs, odd between a dispatch and its combine. Only block 0
/// touches it, so that a kernel needs no barrier for it; kernels of one Exchange follow one another in stream order. A
/// call out of order is counted and still moves the word on: it only grows. Read early and finish late: the load is
/// hidden.
class PhaseWord {
 public:
  enum class Call : u64 { dispatch = 0, combine = 1 };  // the parity each expects

  /// `by_this_block`: whether this block is the one that touches it.
  template <class Exec>
  MOELINK_DEVICE PhaseWord(const Exec& ex, bool by_this_block, u64* word, Call call)
      : word_(by_this_block && ex.thread() == 0 ? word : nullptr), call_(call) {
    if (word_ != nullptr) seen_ = *word_;
  }
  MOELINK_DEVICE void advance(ExchangeStatus* status) const {
    if (word_ == nullptr) return;
    const bool in_order = seen_ % 2 == static_cast<u64>(call_);
    *word_ = seen_ + (in_order ? 1 : 2);
    if (!in_order) report(&status->calls_out_of_order, 1);
  }

 private:
  u64* word_;
  Call call_;
  u64 seen_ = 0;
};

/// Writes the token count for combine, and counts one that had to be clamped. By one thread.
MOELINK_DEVICE void publish_token_count(const LocalDispatchArgs& args, i32 given, i32 clamped) {
  *args.num_tokens_snapshot = clamped;
  if (given != clamped) report(&args.status->token_counts_clamped, 1);
}

/// Which rows an expert may fill. Packed: from the aligned sum of the experts below, to the end of all rows. Batched:
/// its own max_rows. All numbers fit 32 bits (LocalDispatchArgs), alignment included.
struct RowLimits {
  RowLayout layout;
  u32 alignment;
  u32 max_rows;

  MOELINK_DEVICE explicit RowLimits(const LocalDispatchArgs& args)
      : layout(args.layout), alignment(args.alignment), max_rows(static_cast<u32>(args.max_rows)) {}

  MOELINK_DEVICE bool packed() const { return layout == RowLayout::packed; }
  /// Rows that the next expert's first row is away.
  MOELINK_DEVICE u32 aligned(u32 count) const { return (count + alignment - 1) & ~(alignment - 1); }
  /// First row of an expert; `rows_below`: the sum of aligned counts of the experts below (packed).
  MOELINK_DEVICE u32 first(i32 expert, u32 rows_below) const {
    return packed() ? min_of(rows_below, max_rows) : static_cast<u32>(expert) * max_rows;
  }
  /// The row behind the last one an expert may fill.
  MOELINK_DEVICE u32 end(i32 expert) const { return packed() ? max_rows : (static_cast<u32>(expert) + 1) * max_rows; }
  /// The row behind an expert's last pad; `first` and `kept` as written to offsets and counts.
  MOELINK_DEVICE u32 end_of_pads(u32 first_row, u32 kept) const {
    return packed() ? min_of(first_row + aligned(kept), max_rows) : first_row + max_rows;
  }
};

/// Rows that exist in all, by the arguments: nothing is stored past them.
template <class S>
MOELINK_DEVICE i64 total_rows(S spec, const LocalDispatchArgs& args) {
  return args.layout == RowLayout::packed ? args.max_rows : args.max_rows * spec().num_experts;
}

/// Writes all that is known about one entry. `row` < 0: skipped or dropped.
MOELINK_DEVICE void publish_entry(const LocalDispatchArgs& args, i64 entry, i32 row, i32 expert, float weight) {
  args.row_of_entry[entry] = row;
  args.weight_of_entry[entry] = weight;
  if (row < 0) return;
  args.expert_of_row[row] = expert;
  args.weight_of_row[row] = weight;
  args.source_of_row[row] = entry;
}

/// Whether the rows of a call are too many for the caches of a host to be worth filling.
template <class S>
MOELINK_DEVICE bool is_streaming(S spec, const LocalDispatchArgs& args) {
  constexpr i64 kStreamingBytes = 4 << 20;
  return static_cast<i64>(args.num_tokens) * spec().top_k * spec().row_bytes >= kStreamingBytes;
}

}  // namespace moelink

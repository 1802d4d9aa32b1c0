// What the host and the kernels agree on for the tensor-parallel combine: specs, arguments, and the layout of the
// symmetric memory. The protocol, its order of sums, its ordering argument and the reuse argument of every region:
// docs/tensor-parallel.md.
#pragma once

#include "moelink/protocol/carver.hpp"
#include "moelink/protocol/local_moe.hpp"
#include "moelink/protocol/window.hpp"

namespace moelink {

/// Sums travel in units of so many fp32 values: 8, or 4 where rows do not divide into those.
MOELINK_DEVICE constexpr int tp_unit_elements(i64 hidden) { return hidden % 8 == 0 ? 8 : 4; }

/// The units of all tokens, one token behind the other, are cut into items of the push algorithm. An item owns its lines
/// and its epoch, whichever block has it.
inline constexpr int kTpItemUnits = 256;
inline constexpr int kTpPushThreads = 256;
/// Items that a push block has under way: it sends all of them, then waits.
inline constexpr int kTpItemsAtOnce = 2;
/// Staged algorithms: block size, most blocks beside the one that compares inputs, bytes of a block and step.
MOELINK_DEVICE constexpr int tp_staged_threads(int top_k, int num_ranks) {
  return top_k <= 8 && num_ranks <= 4 ? 512 : 256;  // more rows or ranks need more registers a thread
}
inline constexpr int kTpMaxWorkers = 256;
inline constexpr i32 kTpSlotBytes = 16 << 10;
/// One trip: a block stages one step ahead of the one that it sums.
inline constexpr int kTpPullSlots = 4;
/// Words that a rank tells every other in each call.
inline constexpr int kTpControlWords = 4;

/// Where the fp32 partial sums come from.
enum class TpSource : u8 {
  rows,      ///< this kernel combines this rank's rows
  partials,  ///< an earlier launch has
};

/// Specialises the kernels.
struct TensorParallelSpec {
  i64 hidden = 0;
  i32 top_k = 0;
  i32 num_ranks = 0;
  i32 threads = 0;
  i32 blocks_per_sm = 1;
  Element input = Element::bfloat16;  ///< of the rows
  Element output = Element::bfloat16;
  TpSource source = TpSource::rows;
  bool two_shot = false;   ///< staged: a rank sums its shard and stores it to all; else each sums everything
  bool multicast = false;  ///< two-shot through the multicast mapping (NVLS)

  MOELINK_DEVICE constexpr auto fields(auto&& visit) const {
    return visit(hidden, top_k, num_ranks, threads, blocks_per_sm, input, output, source, two_shot, multicast);
  }
};

/// The symmetric buffer of one Exchange. Every rank carves the same.
struct TensorParallelLayout {
  Place<u64> control;        ///< [2][num_ranks][kTpControlWords] lines
  Place<u64> lines;          ///< [2][num_ranks][num_items][unit elements][kTpItemUnits] lines, as pairs
  Place<u8> staging;         ///< [kTpPullSlots][num_workers][kTpSlotBytes] fp32 partial sums
  Place<u8> results;         ///< [num_workers][kTpSlotBytes] rounded sums
  Place<u64> pull_flags;     ///< [num_workers][num_ranks]
  Place<u64> staged_flags;   ///< [num_workers][num_ranks]: "my chunk is staged"
  Place<u64> reduced_flags;  ///< [num_workers][num_ranks]: "my shard is in your results"
  i64 num_items = 0;         ///< most items of one call of push
  i64 num_workers = 0;       ///< most blocks of the staged algorithms
  i64 total_bytes = 0;

  static constexpr TensorParallelLayout of(int num_ranks, i64 num_items, i64 num_workers) {
    TensorParallelLayout layout;
    Carver carver;
    layout.control = carver.take<u64>(i64{2} * num_ranks * kTpControlWords);
    layout.lines = carver.take<u64>(i64{2} * num_ranks * num_items * kTpItemUnits * 8);
    layout.staging = carver.take<u8>(kTpPullSlots * num_workers * kTpSlotBytes);
    layout.results = carver.take<u8>(num_workers * kTpSlotBytes);
    layout.pull_flags = carver.take<u64>(num_workers * num_ranks);
    layout.staged_flags = carver.take<u64>(num_workers * num_ranks);
    layout.reduced_flags = carver.take<u64>(num_workers * num_ranks);
    layout.num_items = num_items;
    layout.num_workers = num_workers;
    layout.total_bytes = carver.total_bytes();
    return layout;
  }
};

/// Private epochs, zero at construction: of the control words, of each block in the one-trip and in the two-trip
/// algorithm, of each item.
struct TensorParallelEpochs {
  static constexpr i64 kControl = 0;
  static constexpr i64 kPull = 16;  // the control block's on a line of its own
  static constexpr i64 kTwoShot = kPull + kTpMaxWorkers;
  static constexpr i64 kItems = kTwoShot + kTpMaxWorkers;
  static constexpr i64 count(i64 num_items) { return kItems + num_items; }
};

/// Arguments of every tensor-parallel combine.
struct TensorParallelArgs {
  LocalCombineArgs combine;     ///< rows, shared, output and the snapshot. `output` before is read by rank 0 alone
  const float* partials;        ///< TpSource::partials: [num_tokens, hidden] dense
  i64 chunk_units;              ///< staged: units of a block and step, at most a slot's
  u64 call_key;                 ///< stands for what hosts must agree on; compared like the inputs
  const RoutingDigest* digest;  ///< of the dispatch
  TensorParallelLayout layout;
  Window window;
  u64* epochs;  ///< TensorParallelEpochs
  FaultContext fault;
};

}  // namespace moelink

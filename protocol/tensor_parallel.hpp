// What the host and the kernels agree on for the tensor-parallel combine: specs, arguments, and the layout of the
// symmetric memory. The protocol, its order of sums, its ordering argument and the reuse argument of every region:
// docs/tensor-parallel.md.
#pragma once

#include "moelink/protocol/carver.hpp"
#include "moelink/protocol/local_moe.hpp"
#include "moelink/protocol/window.hpp"

namespace moelink {

/// Parts of sums travel in units of so many values: 8, or 4 where rows do not divide into those, all types then being
/// fp32.
MOELINK_DEVICE constexpr int tp_unit_elements(i64 hidden) { return hidden % 8 == 0 ? 8 : 4; }

/// The units of all tokens, one token behind the other, are cut into items of the push algorithm. An item owns its
/// lines and its epoch, whichever block has it.
inline constexpr int kTpItemUnits = 256;
inline constexpr int kTpPushThreads = 256;
/// Items that a push block has under way: it sends all of them, then waits.
inline constexpr int kTpItemsAtOnce = 2;
/// Staged algorithms: rows are cut into tiles of so many units (the last of a row is smaller), which a warp sums; the
/// tiles of all tokens, one token behind the other, into chunks, one of a block and step: so large that few steps are
/// left, each of which costs a flag's flight.
inline constexpr int kTpTileUnits = 64;
inline constexpr int kTpChunkTiles = 32;
/// Block size of the algorithms that sum over the ranks from memory.
MOELINK_DEVICE constexpr int tp_staged_threads(int num_ranks) {
  return num_ranks <= 4 ? 512 : 256;  // more ranks need more registers a thread
}
/// Parts in a launch of their own: larger tiles, smaller blocks, of which an SM has two.
inline constexpr int kTpPartsTileUnits = 128;
inline constexpr int kTpPartsThreads = 256;
/// Most blocks beside the one that compares inputs.
inline constexpr int kTpMaxWorkers = 256;
/// One trip: a block stages one step ahead of the one that it sums.
inline constexpr int kTpPullSlots = 4;
/// Words that a rank tells every other in each call.
inline constexpr int kTpControlWords = 4;

/// Specialises the kernels. What a kernel does not look at is set alike, so that fewer are compiled.
struct TensorParallelSpec {
  i64 hidden = 0;
  i32 top_k = 0;
  i32 num_ranks = 0;
  i32 threads = 0;
  i32 blocks_per_sm = 1;
  Element input = Element::bfloat16;  ///< of the rows
  Element part = Element::bfloat16;   ///< of parts on their way: `output`, or fp32
  Element output = Element::bfloat16;
  bool two_shot = false;   ///< a rank sums its shard and stores it to all; else each sums everything
  bool multicast = false;  ///< two-shot through the multicast mapping (NVLS)

  MOELINK_DEVICE constexpr auto fields(auto&& visit) const {
    return visit(hidden, top_k, num_ranks, threads, blocks_per_sm, input, part, output, two_shot, multicast);
  }
};

/// What the symmetric buffer of one Exchange is made for.
struct TensorParallelSizes {
  int num_ranks = 1;
  i64 num_items = 1;    ///< push: most items of one call, of all sizes of parts
  i64 num_workers = 1;  ///< most blocks of the staged algorithms
  i64 unit_bytes = 16;  ///< of a unit of the widest parts
  i64 parts_bytes = 0;  ///< most bytes of one rank's parts; 0: no launch leaves them
};

/// The symmetric buffer of one Exchange. Every rank carves the same.
struct TensorParallelLayout {
  Place<u64> control;        ///< [2][num_ranks][kTpControlWords] lines
  Place<u64> lines;          ///< [2][num_ranks][num_items][unit_bytes / 8][kTpItemUnits] lines, as pairs
  Place<u8> staging;         ///< [kTpPullSlots][num_workers][slot_bytes] parts
  Place<u8> results;         ///< [num_workers][slot_bytes] rounded sums
  Place<u8> parts;           ///< [max_tokens, hidden] parts of a launch of their own; two-shot: then sums
  Place<u64> pull_flags;     ///< [num_workers][num_ranks]
  Place<u64> staged_flags;   ///< [num_workers][num_ranks]: "my parts are there"
  Place<u64> reduced_flags;  ///< [num_workers][num_ranks]: "I have read yours; my shard is with you"
  i64 num_items = 0;
  i64 num_workers = 0;
  i64 unit_bytes = 0;
  i64 slot_bytes = 0;  ///< of a block and step
  i64 total_bytes = 0;

  static constexpr TensorParallelLayout of(const TensorParallelSizes& sizes) {
    TensorParallelLayout layout;
    Carver carver;
    layout.slot_bytes = kTpChunkTiles * kTpTileUnits * sizes.unit_bytes;
    layout.control = carver.take<u64>(i64{2} * sizes.num_ranks * kTpControlWords);
    layout.lines = carver.take<u64>(i64{2} * sizes.num_ranks * sizes.num_items * kTpItemUnits * sizes.unit_bytes / 4);
    layout.staging = carver.take<u8>(kTpPullSlots * sizes.num_workers * layout.slot_bytes);
    layout.results = carver.take<u8>(sizes.num_workers * layout.slot_bytes);
    layout.parts = carver.take<u8>(sizes.parts_bytes);
    layout.pull_flags = carver.take<u64>(sizes.num_workers * sizes.num_ranks);
    layout.staged_flags = carver.take<u64>(sizes.num_workers * sizes.num_ranks);
    layout.reduced_flags = carver.take<u64>(sizes.num_workers * sizes.num_ranks);
    layout.num_items = sizes.num_items;
    layout.num_workers = sizes.num_workers;
    layout.unit_bytes = sizes.unit_bytes;
    layout.total_bytes = carver.total_bytes();
    return layout;
  }
};

/// Private epochs, zero at construction: of the control words, of each block in the one-trip and in the two-trip
/// algorithms, of each item.
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
  i64 first_item;               ///< push: the first of the items that parts of this size have
  i64 chunk_tiles;              ///< staged: tiles of a block and step, at most kTpChunkTiles
  u64 call_key;                 ///< stands for what hosts must agree on; compared like the inputs
  const RoutingDigest* digest;  ///< of the dispatch
  TensorParallelLayout layout;
  Window window;
  u64* epochs;  ///< TensorParallelEpochs
  FaultContext fault;
};

}  // namespace moelink

// Scratch and workspace of the nvlink dispatch of many tokens. All offsets are in bytes, multiples of 16.
#pragma once

#include "moelink/protocol/nvlink_scratch.hpp"
#include "moelink/protocol/pump_scratch.hpp"

namespace moelink {

/// What blocks count while they route: a column of the matrix each.
struct RouteColumns {
  i32 destinations;  ///< behind a column per physical expert: the first of a column per rank, tokens that go there
  i32 out_of_range;  ///< ids
  i32 hash;          ///< of ids and weights
  i32 count;

  MOELINK_DEVICE constexpr explicit RouteColumns(const NvlinkDispatchSpec& spec)
      : destinations(spec.num_experts),
        out_of_range(destinations + spec.num_ranks),
        hash(out_of_range + 1),
        count(hash + 1) {}

  /// Words from one row of the matrix to the next.
  MOELINK_DEVICE constexpr i32 pitch() const { return round_up(count, 4); }
};

/// Words of LocalDispatchArgs::block_counts: a row per block, and one of totals.
constexpr i64 nvlink_prefill_workspace_words(const NvlinkDispatchSpec& spec, i64 grid) {
  return (grid + 1) * RouteColumns(spec).pitch();
}

/// While a block routes.
struct RouteScratch {
  static constexpr i32 kBatch = 1024;  ///< entries that are ranked at once

  i32 next;          ///< u32[RouteColumns::pitch()]: counts, then the next rank or slot
  i32 codes;         ///< u16[kBatch]
  i32 destinations;  ///< u16[kBatch]
  i32 ranks;         ///< u32[kBatch]
  i32 slots;         ///< u32[kBatch]
  i32 weights;       ///< float[kBatch]
  i32 total;

  MOELINK_DEVICE constexpr RouteScratch(const NvlinkDispatchSpec& spec, i32 first)
      : next(first),
        codes(next + RouteColumns(spec).pitch() * 4),
        destinations(codes + kBatch * 2),
        ranks(destinations + kBatch * 2),
        slots(ranks + kBatch * 4),
        weights(slots + kBatch * 4),
        total(weights + kBatch * 4) {}
};

struct NvlinkPrefillScratch {
  SourceScratch sources;
  i32 send_lists;      ///< i32[num_ranks]: chunks that this rank sends to each destination
  i32 receive_lists;   ///< i32[num_ranks]: units that come from each source
  RouteScratch route;  ///< in the place of the ring
  PumpScratch pump;
  i32 total;

  MOELINK_DEVICE constexpr NvlinkPrefillScratch(const NvlinkDispatchSpec& spec, i32 ring_bytes)
      : sources(spec, 0),
        send_lists(sources.total),
        receive_lists(send_lists + round_up(spec.num_ranks * 4, 16)),
        route(spec, receive_lists + round_up(spec.num_ranks * 4, 16)),
        pump(receive_lists + round_up(spec.num_ranks * 4, 16), spec.top_k, ring_bytes),
        total(max_of(route.total, pump.total)) {}
};

}  // namespace moelink

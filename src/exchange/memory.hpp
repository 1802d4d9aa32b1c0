// What an Exchange allocates: one block of device memory, laid out once, and a little pinned host memory.
#pragma once

#include <cstddef>

#include "exchange/shape.hpp"
#include "moelink/device/sync/grid_barrier.cuh"
#include "moelink/protocol/carver.hpp"
#include "moelink/protocol/fault.hpp"
#include "moelink/protocol/local_moe.hpp"
#include "moelink/protocol/local_plan.hpp"

namespace moelink {

/// The device block. It can be shared by Exchanges that are never in flight together (Workspace).
struct DeviceLayout {
  // Words that must be zero before the first call, at the same places in every layout.
  Place<u64> phase;
  Place<GridBarrierWord> grid_barrier;
  Place<u64> fault;
  Place<i32> num_tokens_snapshot;
  static constexpr i64 kControlBytes = 4 * kPlaceAlignmentBytes;
  // What dispatch says about rows, its private snapshot, its scratch.
  Place<i64> offsets;
  Place<i32> counts;
  Place<i32> expert_of_row;
  Place<float> weight_of_row;
  Place<i64> source_of_row;
  Place<i32> row_of_entry;
  Place<float> weight_of_entry;
  Place<u32> block_counts;
  i64 metadata_bytes = 0;  ///< where all of the above ends
  // Rows.
  Place<std::byte> rows;
  Place<std::byte> row_scales;
  Place<std::byte> expert_output;
  Place<std::byte> quantized_tokens;  ///< rows, then scales, of one dispatch's tokens
  i64 total_bytes = 0;
};

/// The pinned host block: what the device reports to the host without anybody waiting.
struct HostLayout {
  Place<ExchangeStatus> status;
  Place<FaultRecord> fault;
  Place<i32> counts;
  i64 total_bytes = 0;
};

struct MemoryLayout {
  DeviceLayout device;
  HostLayout host;
  MemoryReport report;  ///< the same, for people
};

[[nodiscard]] MemoryLayout lay_out_memory(const ExchangeShape& shape, const ExchangeConfig& config,
                                          const LocalDevice& device);

}  // namespace moelink

// What an Exchange allocates: one block of device memory, laid out once, and a little pinned host memory.
#pragma once

#include <cstddef>

#include "exchange/shape.hpp"
#include "moelink/protocol/carver.hpp"
#include "moelink/protocol/local_moe.hpp"

namespace moelink {

/// The device block. It can be shared by Exchanges that are never in flight together (Workspace).
struct DeviceLayout {
  Place<u64> control;  ///< phase word and grid barrier, each on a line of its own; zero before the first call
  Place<std::byte> rows;
  Place<std::byte> row_scales;
  Place<std::byte> expert_output;
  Place<i64> offsets;
  Place<i32> counts;
  Place<i32> expert_of_row;
  Place<float> weight_of_row;
  Place<i64> source_of_row;
  Place<i32> row_of_entry;
  Place<float> weight_of_entry;
  Place<i32> num_tokens_snapshot;
  Place<std::byte> routing_scratch;
  i64 total_bytes = 0;
};

/// The pinned host block: what the device reports to the host without anybody waiting.
struct HostLayout {
  Place<ExchangeStatus> status;
  Place<i32> counts;
  i64 total_bytes = 0;
};

struct MemoryLayout {
  DeviceLayout device;
  HostLayout host;
  MemoryReport report;  ///< the same, for people
};

[[nodiscard]] MemoryLayout lay_out_memory(const ExchangeShape& shape, const ExchangeConfig& config, Device device);

}  // namespace moelink

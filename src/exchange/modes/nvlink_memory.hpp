// What the nvlink mode allocates beside the memory that all modes have: private tables, and the memory that peers write.
#pragma once

#include "exchange/shape.hpp"
#include "moelink/protocol/carver.hpp"
#include "moelink/protocol/local_plan.hpp"
#include "moelink/protocol/nvlink_moe.hpp"

namespace moelink {

[[nodiscard]] NvlinkShape nvlink_shape(const ExchangeShape& shape, const ExchangeConfig& config);

/// One rank's private memory: NvlinkTables, and what dispatch of many tokens works with.
struct NvlinkPrivateLayout {
  Place<u64> epochs;
  Place<i32> num_sent;
  Place<i32> num_received;
  Place<i32> source_tokens;
  Place<i32> dropped;
  Place<u64> tickets;
  i64 zero_bytes = 0;  ///< of the above: zero at first; the rest -1
  Place<i32> slot_of_token;
  Place<i32> token_of_slot;
  Place<i32> received_token;
  Place<i32> row_of_entry;
  Place<float> weight_of_entry;
  Place<u32> block_counts;  ///< no contents
  i64 total_bytes = 0;

  [[nodiscard]] static NvlinkPrivateLayout of(const NvlinkShape& shape, i64 block_count_words);
  [[nodiscard]] NvlinkTables tables(void* base) const;
};

/// Words that prefill counts in, on any grid of this device; 0 if no call is prefill.
[[nodiscard]] i64 nvlink_block_count_words(const ExchangeShape& shape, const ExchangeConfig& config,
                                           const LocalDevice& device);

/// Throws invalid_argument if what may arrive in one call is too much to be numbered.
void add_nvlink_memory(const ExchangeShape& shape, const ExchangeConfig& config, const LocalDevice& device,
                       MemoryReport& report);

}  // namespace moelink

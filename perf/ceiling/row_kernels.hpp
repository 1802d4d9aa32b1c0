// Kernels that move rows and do nothing else, their destinations known: what dispatch and combine cannot beat by much.
// C++17: nvcc reads this.
#pragma once

#include <cstdint>

namespace moelink::perf {

/// One token's row against its rows at the experts. All pointers are device memory.
struct RowTraffic {
  void* token_rows;                  ///< [num_tokens] dense
  void* expert_rows;                 ///< [rows] dense
  const std::int32_t* row_of_entry;  ///< [num_tokens * top_k], -1: none
  std::int64_t num_tokens;
  int top_k;
  std::int64_t row_bytes;  ///< a multiple of 16
};

/// How the work is laid over the device. Each thread moves 16 bytes of a token at a time.
struct RowGrid {
  int threads;     ///< per block
  int max_blocks;  ///< 0: as many as there is work
};

/// Reads every token once and writes it to all of its expert rows.
void launch_expand(const RowTraffic& traffic, RowGrid grid, void* cuda_stream);
/// Reads all expert rows of every token and writes one (their exclusive or: no arithmetic worth mentioning).
void launch_gather(const RowTraffic& traffic, RowGrid grid, void* cuda_stream);

/// Loads both kernels on a device, so that nothing is loaded while a graph is captured; returns its multiprocessors.
[[nodiscard]] int prepare_row_kernels(int cuda_ordinal);

/// Device memory that nobody has.
[[nodiscard]] std::int64_t free_memory_bytes(int cuda_ordinal);

/// Lets kernels on one device store to the memory of another. False: they cannot.
[[nodiscard]] bool enable_peer(int from_ordinal, int to_ordinal);

}  // namespace moelink::perf

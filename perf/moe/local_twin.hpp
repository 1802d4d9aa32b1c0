// A local Exchange over one rank's experts: what rivals place rows and sum with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "perf/moe/moe_set.hpp"

namespace moelink::perf {

/// The configuration of a set for `num_tokens` tokens of one rank, and this rank's experts alone, numbered from zero.
[[nodiscard]] ExchangeConfig twin_config(const MoeSet& set, std::int64_t num_tokens);

/// The same with the ranks as experts: it packs tokens for their destinations, each once. `num_rows`: tokens that
/// leave.
[[nodiscard]] ExchangeConfig packer_config(const MoeSet& set, std::int64_t num_tokens, std::int64_t num_rows);

/// Ranks that a token can go to at most.
[[nodiscard]] int most_ranks_of(const MoeCase& moe);
/// The ranks that own an expert of a token, ascending, each once.
[[nodiscard]] std::vector<std::int32_t> ranks_of_token(const MoeCase& moe, int source, std::int64_t token);
/// The number of an entry's expert on this rank; -1: it is not here.
[[nodiscard]] std::int32_t local_expert_of(const MoeCase& moe, int source, std::int64_t entry);

/// Device memory for so many rows, and never none.
[[nodiscard]] inline Buffer rows_buffer(Device device, std::int64_t rows, std::int64_t row_bytes) {
  return {device, static_cast<std::size_t>(std::max<std::int64_t>(rows * row_bytes, 256))};
}

/// Device memory with this in it, and never none.
template <class T>
[[nodiscard]] Buffer uploaded(const std::vector<T>& values, StreamView stream) {
  Buffer buffer(stream.device(), std::max<std::size_t>(values.size() * sizeof(T), 256));
  if (!values.empty()) copy_bytes(buffer.data(), values.data(), values.size() * sizeof(T), stream);
  stream.synchronize();
  return buffer;
}

}  // namespace moelink::perf

// A local Exchange over one rank's experts: what rivals place rows and sum with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "perf/moe/moe_set.hpp"

namespace moelink::perf {

/// The configuration of a set for `num_tokens` tokens of one rank, and this rank's experts alone, numbered from zero.
[[nodiscard]] ExchangeConfig twin_config(const MoeSet& set, std::int64_t num_tokens);

/// The number of an entry's expert on this rank; -1: it is not here.
[[nodiscard]] std::int32_t local_expert_of(const MoeCase& moe, int source, std::int64_t entry);

/// Device memory with this in it, and never none.
template <class T>
[[nodiscard]] Buffer uploaded(const std::vector<T>& values, StreamView stream) {
  Buffer buffer(stream.device(), std::max<std::size_t>(values.size() * sizeof(T), 256));
  if (!values.empty()) copy_bytes(buffer.data(), values.data(), values.size() * sizeof(T), stream);
  stream.synchronize();
  return buffer;
}

}  // namespace moelink::perf

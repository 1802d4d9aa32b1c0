// The arguments of one call, checked before anything is enqueued. Every refusal is an Error that names the value, the
// expectation and what to do.
#pragma once

#include <cstddef>

#include "exchange/shape.hpp"

namespace moelink {

/// How the rows of a dispatch lie. Kept for the combine that answers it and for dispatches that reuse it.
struct RoutingState {
  i64 num_tokens = 0;  ///< the host's count, or the bound of the device's
  Layout layout = Layout::packed;
  int alignment = 1;
  i64 capacity = 0;  ///< packed: rows in all; batched: rows per expert
  WeightMode weight_mode = WeightMode::none;
};

/// Rows that a buffer for this routing must have.
[[nodiscard]] constexpr i64 rows_of(const RoutingState& routing, i64 num_local_experts) noexcept {
  return routing.layout == Layout::packed ? routing.capacity : routing.capacity * num_local_experts;
}

struct DispatchChoice {
  std::size_t payload = 0;  ///< index into ExchangeConfig::payloads
  RoutingState routing;
};

/// `last` is the routing that args.reuse_routing refers to.
[[nodiscard]] DispatchChoice check_dispatch(const DispatchArgs& args, const ExchangeConfig& config,
                                            const ExchangeShape& shape, const RoutingState& last);

/// Returns the index into ExchangeConfig::combine_types.
[[nodiscard]] std::size_t check_combine(const CombineArgs& args, const ExchangeConfig& config,
                                        const ExchangeShape& shape, const RoutingState& routing);

/// Refuses inputs that share memory with what this dispatch writes, the library's buffers included.
void check_apart_from_rows(const DispatchArgs& args, const MatrixView& rows, const MatrixView& row_scales,
                           const ExchangeConfig& config);
/// Refuses an output inside the memory that tells combine where rows are.
void check_output_apart(const CombineArgs& args, const void* metadata, i64 metadata_bytes);

void check_stream(StreamView stream, Device device);

}  // namespace moelink

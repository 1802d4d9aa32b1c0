#include "exchange/status_board.hpp"

#include <atomic>

#include "base/text.hpp"
#include "moelink/error.hpp"

namespace moelink {
namespace {

/// Kernels add to these counters at any time.
std::int64_t load(u64& counter) noexcept {
  return static_cast<std::int64_t>(std::atomic_ref<u64>(counter).load(std::memory_order_acquire));
}

}  // namespace

DataErrors StatusBoard::data_errors() const noexcept {
  return {.ids_out_of_range = load(status_->ids_out_of_range) - reported_.ids_out_of_range,
          .rows_over_capacity = load(status_->rows_over_capacity) - reported_.rows_over_capacity,
          .token_counts_clamped = load(status_->token_counts_clamped) - reported_.token_counts_clamped,
          .entries_dropped_by_peers = load(status_->entries_dropped_by_peers) - reported_.entries_dropped_by_peers,
          .peer_counts_clamped = load(status_->peer_counts_clamped) - reported_.peer_counts_clamped};
}

void StatusBoard::throw_calls_out_of_order() const {
  const std::int64_t calls = load(status_->calls_out_of_order);
  if (calls == 0) return;
  throw Error(
      ErrorCode::out_of_order,
      text(
          calls,
          " call(s) ran out of order on the device, and what they wrote is undefined; expected dispatch and combine in "
          "turn: replay graphs in that order, on one stream or with events between. This Exchange can "
          "only be destroyed"));
}

void StatusBoard::throw_data_errors() {
  const DataErrors errors = data_errors();
  if (!errors.any()) return;
  reported_.ids_out_of_range += errors.ids_out_of_range;
  reported_.rows_over_capacity += errors.rows_over_capacity;
  reported_.token_counts_clamped += errors.token_counts_clamped;
  reported_.entries_dropped_by_peers += errors.entries_dropped_by_peers;
  reported_.peer_counts_clamped += errors.peer_counts_clamped;
  std::string found;
  const auto add = [&](std::int64_t count, const char* what) {
    if (count != 0) found += text(found.empty() ? "" : "; ", count, " ", what);
  };
  add(errors.ids_out_of_range, "expert ids outside [-1, num_experts) were dropped: check the router");
  add(errors.rows_over_capacity, "rows did not fit and were dropped: raise max_rows or max_rows_per_expert");
  add(errors.token_counts_clamped, "device-side token counts outside [0, tokens.rows] were clamped");
  add(errors.entries_dropped_by_peers,
      "entries of this rank's tokens found no room where they went: raise max_rows or max_rows_per_expert");
  add(errors.peer_counts_clamped, "counts that other ranks sent cannot be and were clamped: check those ranks");
  throw Error(ErrorCode::data, found);
}

}  // namespace moelink

// The host's side of fault records (protocol/fault.hpp): reading them, in words, and asking a device to give up.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "moelink/error.hpp"
#include "moelink/protocol/fault.hpp"

namespace moelink {

[[nodiscard]] std::string_view name_of(FaultKind kind) noexcept;
[[nodiscard]] std::string_view name_of(FaultPhase phase) noexcept;

/// The record, if a fault has been described in it. Safe while devices run.
[[nodiscard]] std::optional<FaultRecord> read_fault(const FaultRecord& record) noexcept;

/// One sentence: "rank 2 waited 5.000 s for rank 3 in dispatch_receive of epoch 17: expected 17, saw 16".
[[nodiscard]] std::string to_string(const FaultRecord& record);

/// What a caller gets for a fault: timeout, peer, out_of_order or aborted, with to_string() and what to do.
[[nodiscard]] Error error_of(const FaultRecord& record,
                             const std::source_location& where = std::source_location::current());

/// Asks the device that reports into `record` to end its waits; within some milliseconds of polling it does.
void request_abort(FaultRecord& record) noexcept;

}  // namespace moelink
